"""Proof for failsoft.training.snapshots."""
