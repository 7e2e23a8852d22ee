"""Removal of what is kept, from every place of a home."""
