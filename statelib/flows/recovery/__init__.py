"""Recovery of a catalog that was lost or is older than the storage: notice it, and rebuild it from the storage."""
