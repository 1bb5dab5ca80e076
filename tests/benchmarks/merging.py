"""The merge of aggregated events with the rows of a table, by delta-rs and by polars."""

from pathlib import Path

import polars as pl
from deltalake import DeltaTable, write_deltalake

from tests.benchmarks.state_columns import COLUMNS


def merge_by_delta(directory: Path, changes: pl.LazyFrame, *, append: bool = False) -> None:
    """Merge aggregated events into the table in the directory. ``append``: none of the keys is in the table."""
    batch = changes.select(COLUMNS).collect().to_arrow()
    if append or not DeltaTable.is_deltatable(str(directory)):
        write_deltalake(str(directory), batch, mode="append")
        return
    newer = "s.ts > t.ts"
    update = {"events": "t.events + s.events", "amount": "t.amount + s.amount"} | {
        name: f"CASE WHEN {newer} THEN s.{name} ELSE t.{name} END" for name in ("text", "ts")
    }
    table = DeltaTable(str(directory))
    merge = table.merge(batch, "t.key = s.key", source_alias="s", target_alias="t")
    merge.when_matched_update(update).when_not_matched_insert_all().execute()


def merged(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.group_by("key").agg(
        pl.col("events").sum(), pl.col("amount").sum(), pl.col("text").sort_by("ts").last(), pl.col("ts").max()
    )
