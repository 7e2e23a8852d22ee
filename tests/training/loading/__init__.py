"""Proof for failsoft.training.loading."""
