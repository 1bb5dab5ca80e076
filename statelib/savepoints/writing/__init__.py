"""Write savepoints that a Flink job starts from."""
