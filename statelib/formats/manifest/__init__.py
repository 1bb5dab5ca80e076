"""statelib's manifest behind Flink's bytes in ``_metadata``."""
