"""The import of state from tables and from Structured Streaming."""
