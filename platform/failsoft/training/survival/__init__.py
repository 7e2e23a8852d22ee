"""How a run lives through hangs, notices to leave and lost workers, and who starts it again."""
