"""Measurements: both sides interleaved in one run."""
