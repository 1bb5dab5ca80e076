"""The stream of Flink's heap backend."""
