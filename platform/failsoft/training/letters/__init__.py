"""The dead letters: what a run refused to learn, written down so that it can be met once more, blamed and mended."""
