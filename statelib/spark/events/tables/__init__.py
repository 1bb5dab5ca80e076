"""Incremental sources: the commits of a table that a run applies, and the reading of their rows."""
