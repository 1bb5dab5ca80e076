"""The Spark session of all jobs, and the way in which they end."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from statelib.extras import extras_named, require_one_pyspark
from statelib.flows.wiring import log_settings
from statelib.spark.session.job_failures import as_own
from statelib.spark.session.local_session import new_session
from statelib.spark.snapshot.termination import unwound_by_signal
from statelib.telemetry.logs import configure, hidden
from statelib.telemetry.secrets import secrets


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """Yield a session whose time zone is UTC. Its master and resources come from spark-submit.

    An error of statelib or of Spark ends the job with exit status 1 and one line. Any other exception is a bug, and
    shows its traceback."""
    configure(log_settings("INFO"))
    spark = new_session(name)
    failure = None
    with unwound_by_signal():
        try:
            require_one_pyspark()
            with extras_named():
                yield spark
        except Exception as error:
            failure = as_own(error)
            if failure is None:
                raise
        finally:
            spark.stop()  # this logs lines, and the error has to be the last line
    if failure is not None:
        print(hidden(f"statelib: {failure.kind}: {failure}", secrets(os.environ)), file=sys.stderr)
        sys.exit(1)
