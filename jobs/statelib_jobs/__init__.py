"""Entry points for spark-submit. Each parses its arguments and calls statelib.spark."""
