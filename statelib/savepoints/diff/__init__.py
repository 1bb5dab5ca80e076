"""Compare two snapshots state by state."""
