"""Deletes and change logs: events that delete their key or take an earlier event back."""
