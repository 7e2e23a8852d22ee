"""Proof for failsoft.training.checkpoints."""
