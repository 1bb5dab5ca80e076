"""Everything that changes the catalog, and the fence before it."""
