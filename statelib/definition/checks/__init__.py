"""Checks of a pipeline file: pure functions that yield problems and never raise."""
