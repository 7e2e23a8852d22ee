"""A simulated fleet."""
