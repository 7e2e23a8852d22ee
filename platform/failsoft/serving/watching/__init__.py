"""What one gateway sees of the model, and tells."""
