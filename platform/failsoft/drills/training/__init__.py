"""The training side: any script is run unchanged, broken in each of its phases, and compared with its quiet run."""
