"""What one gateway sees of the model."""
