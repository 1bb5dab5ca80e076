"""One Spark session and one copy of the data for each test process."""

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession
from worlds import CHECKOUT

from demo.prepare import raw_flights, write_days


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    os.environ["PYTHONPATH"] = str(CHECKOUT)
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", options)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.adaptive.coalescePartitions.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def flights() -> pl.DataFrame:
    return raw_flights()


@pytest.fixture(scope="session")
def data(flights: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first ten days of flights, as the pipelines expect them."""
    root = tmp_path_factory.mktemp("data")
    write_days(flights.filter(pl.col("time_hour") < datetime(2013, 1, 11, tzinfo=UTC)), root / "flights")
    return root
