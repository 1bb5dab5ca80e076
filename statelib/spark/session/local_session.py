"""The Spark session of statelib's own work."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkConf
from pyspark.sql import SparkSession

_DAEMON = "spark.python.daemon.module"


def new_session(name: str, master: str | None = None) -> SparkSession:
    """A session whose time zone is UTC. ``master`` None: spark-submit says it, as it says all resources."""
    builder = SparkSession.builder.appName(name)
    return (
        (builder if master is None else builder.master(master))
        .config(conf=with_daemon(SparkConf()))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config("spark.sql.adaptive.coalescePartitions.enabled", "false")
        .getOrCreate()
    )


def with_daemon(conf: SparkConf) -> SparkConf:
    """With statelib's daemon for Python workers, unless another is set or executors get statelib with the job
    (``spark.submit.pyFiles``): daemons start before those files are there."""
    return conf if conf.get("spark.submit.pyFiles", "") else conf.setIfMissing(_DAEMON, "statelib.spark.session.daemon")


@contextmanager
def borrowed_session(name: str, master: str) -> Iterator[SparkSession]:
    """The session that this process has already, else a new one, which ends with the block."""
    running = SparkSession.getActiveSession()
    spark = new_session(name, master)
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()
