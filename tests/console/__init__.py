"""Proof for failsoft.console."""
