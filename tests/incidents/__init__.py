"""Proof for failsoft.incidents."""
