"""Proof for failsoft.models."""
