"""Proof for failsoft.training.letters."""
