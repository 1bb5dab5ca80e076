"""spark-submit entry points: thin shells around statelib.spark."""

from statelib.spark.installed import prefer_installed

prefer_installed()  # before a job imports PySpark
