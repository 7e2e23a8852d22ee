"""What may be wrong with this machine, its settings and what it serves, each with its mend."""
