"""Proof for failsoft.health."""
