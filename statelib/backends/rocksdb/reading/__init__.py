"""Reading the entries of a RocksDB database, from the database or from its tables."""
