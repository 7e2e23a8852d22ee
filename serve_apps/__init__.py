"""Composition roots for Ray Serve: ``serve run serve_apps:app``."""

from serve_apps.intent_ner import app

__all__ = ["app"]
