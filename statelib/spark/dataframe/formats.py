"""The registration of the two formats of ``spark.read`` in a session."""

from pyspark.sql import SparkSession, is_remote

from statelib.flows.wiring import described
from statelib.spark.dataframe.metadata_source import MetadataDataSource
from statelib.spark.dataframe.state_source import StateDataSource
from statelib.spark.session.either_kind import cores

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""The Spark setting without which Spark rejects a reader that accepts filters. It is off by default."""


def register_formats(spark: SparkSession) -> None:
    """Register the formats as :func:`statelib.spark.register` describes. The number of tasks that the session can run
    at once is stored in the data source now, because Spark plans a read in a process without a session. Through Spark
    Connect that process is the server's, so the deployment of this process is stored too."""
    tasks, deployment = cores(spark), described() if is_remote() else None

    class State(StateDataSource):
        cores = tasks
        variables = deployment

    class Metadata(MetadataDataSource):
        variables = deployment

    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(State)
    spark.dataSource.register(Metadata)
