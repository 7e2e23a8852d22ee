"""Composition roots for Ray jobs."""
