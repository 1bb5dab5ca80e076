"""The Spark session, its Python workers, and what its failures mean."""
