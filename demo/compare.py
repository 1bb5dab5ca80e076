"""Comparison of the stored state of both pipelines with the same state computed by polars from the raw flights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import pairwise
from typing import Any

import polars as pl

from statelib.savepoints.opened import Checkpoint

ROUTE = ["origin", "dest", "carrier"]
BOUNDS = (-15, 0, 15, 30, 60, 120, 240)
"""Upper bounds, inclusive, of the histogram of arrival delays; the same as in ``route_delays.yaml``."""


@dataclass(frozen=True)
class Comparison:
    """Result of one comparison. ``entries``: the number of entries in either table; ``different``: the number of those
    that are in only one of them or differ in any column."""

    what: str
    entries: int
    different: int
    examples: tuple[str, ...]


def compare_all(flights: pl.DataFrame, end: datetime, checkpoints: Mapping[str, Checkpoint]) -> list[Comparison]:
    """Compare the checkpoint of each pipeline with what polars computes from the flights before ``end``.
    ``checkpoints``: checkpoint by pipeline."""
    applied = flights.filter(pl.col("time_hour") < end)
    aircraft, routes = checkpoints["aircraft_activity"], checkpoints["route_delays"]
    return [
        difference("aircraft_activity", aircraft_expected(applied), aircraft_found(aircraft), ["tailnum"]),
        difference(
            "aircraft_activity, flights per destination",
            destinations_expected(applied),
            destinations_found(aircraft),
            ["tailnum", "dest"],
        ),
        difference("route_delays", routes_expected(applied), routes_found(routes), ROUTE),
    ]


def difference(what: str, expected: pl.DataFrame, actual: pl.DataFrame, keys: Sequence[str]) -> Comparison:
    """Join both tables by key and compare every column exactly; null equals only null. Raises ValueError if their
    columns differ."""
    columns = [name for name in expected.columns if name not in keys]
    if sorted(actual.columns) != sorted(expected.columns):
        raise ValueError(f"{what}: expected columns {sorted(expected.columns)}, found {sorted(actual.columns)}")
    both = expected.with_columns(is_present=True).join(
        actual.with_columns(is_present=True), on=list(keys), how="full", coalesce=True, suffix="_actual"
    )
    unequal = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_actual")) for name in [*columns, "is_present"])
    wrong = both.filter(unequal)
    examples = tuple(_example(row, keys, columns) for row in wrong.head(5).iter_rows(named=True))
    return Comparison(what, both.height, wrong.height, examples)


def _example(row: Mapping[str, Any], keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return a line that names a key and how its values differ."""
    key = ", ".join(str(row[name]) for name in keys)
    if row["is_present"] is None or row["is_present_actual"] is None:
        return f"{key}: only in {'the state' if row['is_present'] is None else 'the direct computation'}"
    parts = [
        f"{name} is {row[f'{name}_actual']}, expected {row[name]}"
        for name in columns
        if row[name] != row[f"{name}_actual"]
    ]
    return f"{key}: {'; '.join(parts)}"


def aircraft_expected(flights: pl.DataFrame) -> pl.DataFrame:
    """Return a row per aircraft, computed from the flights. Flights without a tail number do not count."""
    with_tailnum = flights.filter(pl.col("tailnum").is_not_null()).sort("time_hour", "flight", "dest")
    return with_tailnum.group_by("tailnum").agg(
        flights=pl.len().cast(pl.Int64),
        distance=pl.col("distance").sum(),
        dep_delay=_sum("dep_delay"),
        arr_delay=_sum("arr_delay"),
        first_seen=pl.col("time_hour").min(),
        last_seen=pl.col("time_hour").max(),
        last_dest=pl.col("dest").last(),
    )


def aircraft_found(checkpoint: Checkpoint) -> pl.DataFrame:
    """Return a row per aircraft, read from a checkpoint of ``aircraft_activity``."""
    table = _state(checkpoint, "activity")
    moments = [pl.col(name).cast(pl.Datetime("us", "UTC")) for name in ("first_seen", "last_seen")]
    last = pl.col("last_dest").struct.field("value").alias("last_dest")
    return table.rename({"key": "tailnum"}).unnest("value").with_columns(*moments, last)


def destinations_expected(flights: pl.DataFrame) -> pl.DataFrame:
    """Return the number of flights per aircraft and destination, computed from the flights."""
    with_tailnum = flights.filter(pl.col("tailnum").is_not_null())
    return with_tailnum.group_by("tailnum", "dest").agg(flights=pl.len().cast(pl.Int64))


def destinations_found(checkpoint: Checkpoint) -> pl.DataFrame:
    """Return the number of flights per aircraft and destination, read from a checkpoint of ``aircraft_activity``."""
    table = _state(checkpoint, "flights_per_dest")
    return table.rename({"key": "tailnum", "user_key": "dest", "value": "flights"})


def routes_expected(flights: pl.DataFrame) -> pl.DataFrame:
    """Return a row per route (origin, destination, carrier), computed from the flights."""
    averages = [
        expression
        for name in ("dep_delay", "arr_delay", "air_time")
        for expression in (_sum(name).alias(f"{name}_sum"), _count(name).alias(f"{name}_count"))
    ]
    return flights.group_by(ROUTE).agg(
        pl.col("arr_delay").max().alias("worst_arr_delay"),
        pl.col("arr_delay").min().alias("best_arr_delay"),
        _sum("air_time").alias("minutes_flown"),
        pl.len().cast(pl.Int64).alias("flights"),
        pl.col("dep_delay").count().cast(pl.Int64).alias("departed"),
        *averages,
        *_histogram("arr_delay"),
    )


def routes_found(checkpoint: Checkpoint) -> pl.DataFrame:
    """Return a row per route, read from a checkpoint of ``route_delays``."""
    scalars = ("worst_arr_delay", "best_arr_delay", "minutes_flown")
    tables = [_route_state(checkpoint, name).rename({"value": name}) for name in scalars]
    delays = _route_state(checkpoint, "delays").unnest("value")
    for name in ("dep_delay", "arr_delay", "air_time"):
        fields = [pl.col(name).struct.field(part).alias(f"{name}_{part}") for part in ("sum", "count")]
        delays = delays.with_columns(fields).drop(name)
    bars = [pl.col("value").list.get(i).alias(f"histogram_{i}") for i in range(len(BOUNDS) + 1)]
    histogram = _route_state(checkpoint, "arr_delay_histogram").with_columns(bars).drop("value")
    return reduce(lambda a, b: a.join(b, on=ROUTE, how="full", coalesce=True), [delays, histogram, *tables])


def _sum(name: str) -> pl.Expr:
    """Return the sum of a column; null, as in SQL, where there is no value to add."""
    return pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name)


def _count(name: str) -> pl.Expr:
    """Return the number of values of a column; null where there is none."""
    counted = pl.col(name).count().cast(pl.Int64)
    return pl.when(counted > 0).then(counted)


def _histogram(name: str) -> list[pl.Expr]:
    """Return a count per bar of the histogram. Bar i counts bounds[i-1] < value <= bounds[i]; every bar is null where
    there is no value at all."""
    edges = pairwise([float("-inf"), *map(float, BOUNDS), float("inf")])
    has_values = pl.col(name).count() > 0
    bars = [pl.col(name).is_between(low, high, closed="right").sum().cast(pl.Int64) for low, high in edges]
    return [pl.when(has_values).then(bar).alias(f"histogram_{i}") for i, bar in enumerate(bars)]


def _state(checkpoint: Checkpoint, state: str) -> pl.DataFrame:
    """Return the entries of one state, without their key groups."""
    frame = pl.from_arrow(checkpoint.to_arrow(state))
    assert isinstance(frame, pl.DataFrame)
    return frame.drop("key_group")


def _route_state(checkpoint: Checkpoint, state: str) -> pl.DataFrame:
    """Return the entries of one state of ``route_delays``, with the fields of the key as columns."""
    fields = [pl.col("key").struct.field(f"f{i}").alias(name) for i, name in enumerate(ROUTE)]
    return _state(checkpoint, state).with_columns(fields).drop("key")
