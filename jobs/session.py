"""The Spark session that both jobs use."""

from pyspark.sql import SparkSession


def session(name: str) -> SparkSession:
    """A session whose time zone is UTC; master and resources come from spark-submit."""
    return (
        SparkSession.builder.appName(name)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config("spark.sql.adaptive.coalescePartitions.enabled", "false")
        .getOrCreate()
    )
