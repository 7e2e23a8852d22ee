"""Proof for failsoft.drills."""
