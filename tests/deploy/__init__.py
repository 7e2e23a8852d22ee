"""Tests of what is in deploy/: manifests against their schemas, scripts against fakes of what they call."""
