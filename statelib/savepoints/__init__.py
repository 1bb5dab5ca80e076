"""Snapshots as things: open, read, compare and write any checkpoint or savepoint by its URI, without a catalog."""
