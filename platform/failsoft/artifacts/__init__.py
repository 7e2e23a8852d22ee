"""The contract between training and serving: what is on disk, whole and verified."""
