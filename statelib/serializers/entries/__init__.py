"""Entries of state: composite keys, values, timers, and the columns that people and programs see."""
