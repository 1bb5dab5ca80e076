"""Importing this module puts PySpark as it is installed before Spark's zip. Each job imports it before PySpark."""

from statelib.spark.session.installed import prefer_installed

prefer_installed()
