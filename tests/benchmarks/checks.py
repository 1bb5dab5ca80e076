"""Checks that contenders ended with the right state: totals over all keys, which differ if a value is at a wrong
key."""

from pathlib import Path

import polars as pl
import pyarrow as pa

Totals = tuple[int, int, float, int, int]
"""The number of keys and events, the sum of amounts, the sum of the times of the last events, and the same weighted
by key."""
WEIGHTS = 1009


def expected(batches: list[Path]) -> Totals:
    """Return the expected totals of workload W, computed from its files."""
    events = pl.scan_parquet([file for batch in batches for file in sorted(batch.iterdir())])
    return totals(state_of(events).collect())


def state_of(events: pl.LazyFrame) -> pl.LazyFrame:
    """Return ``key, events, amount, ts, text`` of each key."""
    return events.group_by("key").agg(
        pl.len().cast(pl.Int64).alias("events"),
        pl.col("amount").sum(),
        pl.col("text").sort_by("ts").last(),
        pl.col("ts").max(),
    )


def state_of_batch(directory: Path) -> pl.LazyFrame:
    """Return the same of the events in the Parquet files of a directory."""
    return state_of(pl.scan_parquet(sorted(directory.iterdir())))


def totals(state: pl.DataFrame) -> Totals:
    """Return the totals of the columns ``key, events, amount, ts``, after checking that ``text`` belongs to the key."""
    wrong = state.filter(pl.col("text") != "text-of-" + pl.col("key").cast(pl.String).str.zfill(8)).height
    weighted = (pl.col("ts") * (pl.col("key") % WEIGHTS)).sum()
    keys, events, amount, ts, mixed = state.select(
        pl.len() - wrong, pl.col("events").sum(), pl.col("amount").sum(), pl.col("ts").sum(), weighted.alias("mixed")
    ).row(0)
    return keys, events, amount, ts, mixed


def of_statelib(table: pa.Table) -> Totals:
    """Return the totals of the state ``activity``."""
    state = pl.DataFrame(table.select(["key", "value"])).unnest("value").unnest("last")
    return totals(state.rename({"by_ts": "ts", "value": "text"}))


def verdict(totals: dict[str, Totals], right: Totals) -> str:
    """Return the contenders with wrong results, for the note of a row; empty if all are right."""
    wrong = {name: one for name, one in totals.items() if one != right}
    return f"INVALID, expected {right}, found {wrong}" if wrong else ""
