"""Training that goes on: guarded steps, snapshots, exact data order, verified checkpoints, supervised restarts."""
