"""Files on one host's own disk: copies of checkpoint files for the next restore, and scratch directories."""
