"""Drills of Serve apps on fakes, on processes and small servers of the tests, and on Serve's own code."""
