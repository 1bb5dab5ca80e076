"""The two formats of ``spark.read``, made known to a session."""

from pyspark.sql import SparkSession

from statelib.spark.dataframe.metadata_source import MetadataDataSource
from statelib.spark.dataframe.state_source import StateDataSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Off by default, and with it off Spark refuses every reader that can take filters."""


def register_formats(spark: SparkSession) -> None:
    """As :func:`statelib.spark.register`. How many tasks the session can run at once is noted now, because
    Spark plans a read in a process that has no session."""

    class Registered(StateDataSource):
        cores = spark.sparkContext.defaultParallelism

    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(Registered)
    spark.dataSource.register(MetadataDataSource)
