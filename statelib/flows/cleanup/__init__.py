"""Cleanup: retention, garbage collection and the orphan sweep, each pipeline by itself."""
