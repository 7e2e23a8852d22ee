"""What callers send, made readable: the net before the model."""
