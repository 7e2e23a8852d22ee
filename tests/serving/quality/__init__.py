"""Tests of the quality kinds."""
