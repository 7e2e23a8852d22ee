"""Asking a model from a gateway."""
