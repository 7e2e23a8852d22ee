"""Proof for train_jobs."""
