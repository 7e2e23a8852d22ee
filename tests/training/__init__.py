"""Proof for failsoft.training."""
