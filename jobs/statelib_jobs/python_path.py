"""Put the installed PySpark before the one in Spark's zip file, when this module is imported.

Each job imports it before PySpark."""

from statelib.spark.session.installed import prefer_installed

prefer_installed()
