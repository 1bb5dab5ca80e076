"""Entries and files as text, for people and for other programs."""
