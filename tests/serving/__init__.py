"""Proof for failsoft.serving."""
