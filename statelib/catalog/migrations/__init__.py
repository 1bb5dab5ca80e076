"""Alembic migrations of the catalog, run by ``statelib.catalog.migration``."""
