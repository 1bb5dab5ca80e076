"""The Spark session that both jobs use, and how they end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from statelib.errors import StatelibError


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """A session whose time zone is UTC; master and resources come from spark-submit. An error of
    statelib ends the job with status 1 and one line; anything else is a bug and shows its traceback."""
    spark = (
        SparkSession.builder.appName(name)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config("spark.sql.adaptive.coalescePartitions.enabled", "false")
        .getOrCreate()
    )
    try:
        yield spark
    except StatelibError as error:
        print(f"statelib: {error.kind}: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        spark.stop()
