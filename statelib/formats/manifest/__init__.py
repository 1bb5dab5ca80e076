"""statelib's manifest, which follows Flink's bytes in ``_metadata``."""
