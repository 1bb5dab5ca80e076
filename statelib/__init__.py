"""statelib keeps keyed state for batch pipelines the way Flink keeps it for streams."""
