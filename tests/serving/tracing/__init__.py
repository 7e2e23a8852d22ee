"""What becomes of a request, step by step, and of what tells it."""
