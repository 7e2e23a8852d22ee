"""The processes that hold models."""
