"""Proof for failsoft.release."""
