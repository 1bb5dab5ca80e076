"""Commands that read snapshots, also those that no catalog has."""
