"""One copy of the data for each test process."""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from demo.prepare import raw_flights, write_days


@pytest.fixture(scope="session")
def flights() -> pl.DataFrame:
    return raw_flights()


@pytest.fixture(scope="session")
def data(flights: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory with the first ten days of flights, as the pipelines expect them."""
    root = tmp_path_factory.mktemp("data")
    write_days(flights.filter(pl.col("time_hour") < datetime(2013, 1, 11, tzinfo=UTC)), root / "flights")
    return root
