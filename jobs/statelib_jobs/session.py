"""The Spark session of all jobs, and the way in which they end."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from statelib.extras import extras_named, require_one_pyspark
from statelib.flows.wiring import log_settings
from statelib.spark import REMOTE, is_remote_url
from statelib.spark.session.job_failures import as_own
from statelib.spark.session.local_session import new_session
from statelib.spark.session.termination import unwound_by_signal
from statelib.telemetry.logs import configure, hidden
from statelib.telemetry.secrets import secrets


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """Yield a session whose time zone is UTC. Its master and resources come from spark-submit; if the variable
    ``SPARK_REMOTE`` names a Spark Connect server, the session is one of the server.

    An error of statelib or of Spark ends the job with exit status 1 and one line. Any other exception is a bug, and
    shows its traceback."""
    configure(log_settings("INFO"))
    failure, server = None, os.environ.get(REMOTE, "")
    with unwound_by_signal():
        try:
            with _stopped(new_session(name, server if is_remote_url(server) else None)) as spark:
                require_one_pyspark()
                with extras_named():
                    yield spark
        except Exception as error:
            failure = as_own(error)
            if failure is None:
                raise
    gc.freeze()  # the process ends: its end would search all objects for garbage
    if failure is not None:
        print(hidden(f"statelib: {failure.kind}: {failure}", secrets(os.environ)), file=sys.stderr)
        sys.exit(1)


@contextmanager
def _stopped(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield the session and stop it, before an error is printed: this logs lines, and the error has to be the last
    line."""
    try:
        yield spark
    finally:
        spark.stop()
