"""A run on thousands of GPUs, simulated: published faults, and the policies by which failsoft itself decides."""
