"""Taking trust away from a model and giving it back, in stages."""
