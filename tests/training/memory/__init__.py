"""Proof for failsoft.training.memory."""
