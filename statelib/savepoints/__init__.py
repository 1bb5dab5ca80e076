"""Functions that open, read, verify, compare and write a checkpoint or savepoint by its URI, without a catalog."""
