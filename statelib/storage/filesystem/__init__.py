"""Checkpoint storage on local, shared and mounted file systems."""
