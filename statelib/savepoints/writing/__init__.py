"""The writing of savepoints from which a Flink job can start."""
