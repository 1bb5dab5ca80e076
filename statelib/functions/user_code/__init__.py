"""Functions and hooks of users: their import, what they receive, and the checks of what they return."""
