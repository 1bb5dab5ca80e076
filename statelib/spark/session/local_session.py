"""The Spark session in which statelib runs its jobs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkConf
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from statelib.spark import is_remote_url

_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of PySpark that print the error of a query as JSON, although the error is raised too."""
_DAEMON = "spark.python.daemon.module"


SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
"""The settings of every session, whatever a user sets: events are read in UTC."""


def new_session(name: str, master: str | None = None) -> SparkSession:
    """Return a Spark session with the time zone UTC. ``master``: a master of Spark, or the URL of a Spark Connect
    server; None if spark-submit sets the master.

    Raises as :func:`~statelib.spark.session.remote_session.remote_session`."""
    for logger in _QUERY_LOGGERS:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    if is_remote_url(master or ""):
        from statelib.spark.session.remote_session import change_settings, remote_session  # imports gRPC and pandas

        spark = remote_session(str(master))
        change_settings(spark, SETTINGS.items())
        return spark
    builder = SparkSession.builder.appName(name)
    builder = builder if master is None else builder.master(master)
    return builder.config(conf=with_daemon(SparkConf())).config(map=dict(SETTINGS)).getOrCreate()


def with_daemon(conf: SparkConf) -> SparkConf:
    """Set statelib's daemon for Python workers and return ``conf``. Nothing is set if another daemon is set, or if
    executors receive statelib with the job (``spark.submit.pyFiles``), because daemons start before these files are
    available."""
    return conf if conf.get("spark.submit.pyFiles", "") else conf.setIfMissing(_DAEMON, "statelib.spark.session.daemon")


@contextmanager
def borrowed_session(name: str, master: str) -> Iterator[SparkSession]:
    """Yield the active session of this process, or a new session that is stopped at the end of the block."""
    running = SparkSession.getActiveSession()
    spark = new_session(name, master)
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()
