"""Where the time of a run went, and which samples it has seen."""
