"""Checks of ``source:``, ``sources:`` and ``schedule:``."""
