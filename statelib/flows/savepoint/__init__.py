"""Savepoints, forks, and first states that come from outside statelib."""
