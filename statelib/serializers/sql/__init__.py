"""Internal values of Flink SQL."""
