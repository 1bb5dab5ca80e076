"""State from tables and from Structured Streaming."""
