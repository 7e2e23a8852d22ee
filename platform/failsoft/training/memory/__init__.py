"""The memory ladder: a run that runs out of memory does the same work in smaller bites, instead of ending."""
