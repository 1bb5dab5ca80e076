"""The Spark session, its Python workers, and the translation of its errors."""
