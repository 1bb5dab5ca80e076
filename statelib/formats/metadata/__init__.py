"""Flink's ``_metadata`` file and the handles in it."""
