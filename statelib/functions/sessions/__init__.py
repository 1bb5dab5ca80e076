"""Session windows: states whose windows grow and merge while the events of a key follow each other closely."""
