"""Checks of the settings in ``checkpoint:`` that need states and sources of a certain kind."""
