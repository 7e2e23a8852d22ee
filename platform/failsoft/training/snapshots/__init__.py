"""The state of a run, copied into host memory behind its back and put back bit for bit."""
