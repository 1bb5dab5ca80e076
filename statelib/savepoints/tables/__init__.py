"""The state of a snapshot as tables: Arrow tables and Parquet files."""
