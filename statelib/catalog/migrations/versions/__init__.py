"""One file a schema version, oldest first; a released one is never edited."""
