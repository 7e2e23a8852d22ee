"""Serving that gives less instead of stopping, and finds its way back."""
