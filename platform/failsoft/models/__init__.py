"""The example workload: joint intent and entity recognition, its fallbacks and its corpora."""
