"""The streams of Flink's change log."""
