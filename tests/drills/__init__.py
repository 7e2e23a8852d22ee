"""Drills that break real processes on purpose."""
