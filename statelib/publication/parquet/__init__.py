"""Published tables as plain Parquet files, in a directory or in a bucket."""
