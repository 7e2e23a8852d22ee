"""Proof for failsoft.demo."""
