"""Streams around streams: merged into few files, written twice, or timed."""
