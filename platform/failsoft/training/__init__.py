"""Training that goes on through bad numbers, dead workers and preemption."""
