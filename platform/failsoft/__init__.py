"""failsoft: training and serving that give less when a part breaks, and do not stop."""

__version__ = "0.1.0"
