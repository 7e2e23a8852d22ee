"""Proof for failsoft.training.survival."""
