"""Checkpoint: begin it, plan and publish its snapshot, check it, and register or abort it."""
