"""The registration of the two formats of ``spark.read`` in a session."""

from pyspark.sql import SparkSession

from statelib.spark.dataframe.metadata_source import MetadataDataSource
from statelib.spark.dataframe.state_source import StateDataSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""The Spark setting without which Spark rejects a reader that accepts filters. It is off by default."""


def register_formats(spark: SparkSession) -> None:
    """Register the formats as :func:`statelib.spark.register` describes. The number of tasks that the session can run
    at once is stored in the data source now, because Spark plans a read in a process without a session."""

    class Registered(StateDataSource):
        cores = spark.sparkContext.defaultParallelism

    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(Registered)
    spark.dataSource.register(MetadataDataSource)
