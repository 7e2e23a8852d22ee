"""The state of a run on disk: written by a process of its own, kept by rule, found whole and healthy again."""
