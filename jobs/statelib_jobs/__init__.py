"""spark-submit entry points: thin shells around statelib.spark."""
