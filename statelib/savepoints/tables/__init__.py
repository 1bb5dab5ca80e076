"""The state of a snapshot as tables."""
