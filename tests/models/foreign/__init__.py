"""Tests of models that were made elsewhere."""
