"""Checks of ``states:`` and ``operator_state:``."""
