"""Drills of train scripts, on fakes and on small scripts of the tests."""
