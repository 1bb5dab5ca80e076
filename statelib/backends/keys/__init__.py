"""Serialized keys as columns: finding, counting and sorting them."""
