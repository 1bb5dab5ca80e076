"""The canonical savepoint stream, which belongs to no backend."""
