"""Entries of state: composite keys, values, timers, and their columns."""
