"""Writing tables in columns, which RocksDB takes in whole."""
