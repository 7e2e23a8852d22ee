"""Samples that fail soft: where they come from, how they are checked, what stands in for those that can't be had."""
