"""Kinds of answers, and when they are credible: what a config names as its quality."""
