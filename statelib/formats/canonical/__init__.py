"""The canonical savepoint stream, which is independent of the state backend."""
