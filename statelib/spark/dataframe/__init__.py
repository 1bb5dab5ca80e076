"""The Spark data sources that read a snapshot as a DataFrame."""
