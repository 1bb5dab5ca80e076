"""The commands that start a run of a pipeline, or a Spark job in its place."""
