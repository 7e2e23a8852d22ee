"""Trust, taken and given back in stages."""
