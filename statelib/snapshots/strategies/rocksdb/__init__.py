"""The snapshots of RocksDB in its own files."""
