"""Proof for failsoft.alerts."""
