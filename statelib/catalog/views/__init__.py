"""What the catalog shows: history, standings, storage in use, verdicts."""
