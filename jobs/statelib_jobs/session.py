"""The Spark session that both jobs use, and how they end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from statelib.errors import StatelibError
from statelib.flows.wiring import log_settings, secrets
from statelib.spark.session import new_session
from statelib.spark.termination import unwound_by_signal
from statelib.telemetry.logs import configure, hidden


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """A session whose time zone is UTC; master and resources come from spark-submit. An error of
    statelib ends the job with status 1 and one line; anything else is a bug and shows its traceback."""
    configure(log_settings("INFO"))
    spark = new_session(name)
    with unwound_by_signal():
        try:
            yield spark
        except StatelibError as error:
            print(hidden(f"statelib: {error.kind}: {error}", secrets()), file=sys.stderr)
            sys.exit(1)
        finally:
            spark.stop()
