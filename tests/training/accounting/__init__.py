"""Proof for failsoft.training.accounting."""
