"""The net before the model."""
