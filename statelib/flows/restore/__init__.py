"""Restore: find a snapshot, plan the restore, make the snapshot the pipeline's head, and restore its state."""
