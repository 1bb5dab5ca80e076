"""RocksDB's sorted table files."""
