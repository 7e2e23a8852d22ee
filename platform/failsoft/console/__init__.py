"""The operator's web page: what is happening now, why, and what may be done about it."""
