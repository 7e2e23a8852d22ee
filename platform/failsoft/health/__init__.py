"""How we know that something is ill: shared by training and serving."""
