"""Everything that changes the catalog, and the epochs that keep superseded processes from changing it."""
