"""Proof for failsoft.artifacts."""
