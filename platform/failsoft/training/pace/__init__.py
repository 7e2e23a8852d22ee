"""Slow ranks: how long each rank works on its part of a batch, which one holds the others up, and its lighter share."""
