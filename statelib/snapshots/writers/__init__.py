"""The writers of state for a savepoint that no job took."""
