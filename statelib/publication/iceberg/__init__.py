"""Published tables in the format Iceberg."""
