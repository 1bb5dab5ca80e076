"""The comparison of two snapshots, state by state."""
