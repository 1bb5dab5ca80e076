"""Snapshots as text for people and as JSON for machines."""
