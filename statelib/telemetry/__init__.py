"""Observation of a process: metrics through a port, and log lines that name their checkpoint and hide secrets."""
