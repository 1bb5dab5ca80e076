"""Contenders that keep the state as a table of files: a rewrite by Spark or polars, a MERGE by delta-rs."""

import shutil
from pathlib import Path

import polars as pl
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.benchmarks.checks import Totals, state_of, totals
from tests.benchmarks.events import PARALLELISM, batch_directory
from tests.benchmarks.measure import Contender

COLUMNS = ["key", "events", "amount", "text", "ts"]


class PolarsRewrite:
    """A contender in one process, without Spark: read the state, add the batch, write all of it as Parquet."""

    def __init__(self, root: Path) -> None:
        self._root, self.directory = root, root / "polars-state"
        self.directory.mkdir()

    def contender(self) -> Contender:
        return Contender(self._run)

    def totals(self) -> Totals:
        return totals(pl.read_parquet(self.directory / "state.parquet"))

    def _run(self, number: int) -> None:
        more, held = partial(self._root, number), self.directory / "state.parquet"
        if held.exists():
            more = merged(pl.concat([pl.scan_parquet(held).select(COLUMNS), more.select(COLUMNS)]))
        target = self.directory / f"{number}.parquet"
        more.collect().write_parquet(target)
        target.replace(held)


class DeltaMerge:
    """A contender in one process, without Spark: delta-rs's MERGE of the batch, aggregated before by polars."""

    def __init__(self, root: Path) -> None:
        self._root, self.directory = root, root / "delta-state"
        self.directory.mkdir()

    def contender(self) -> Contender:
        return Contender(self._run)

    def totals(self) -> Totals:
        files = [path.removeprefix("file://") for path in DeltaTable(str(self.directory)).file_uris()]
        return totals(pl.read_parquet(files))

    def _run(self, number: int) -> None:
        merge_by_delta(self.directory, partial(self._root, number))


class SparkRewrite:
    """A Spark job: read the state, union the batch, aggregate, write all of it as Parquet."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root, self.directory = spark, root, root / "spark-state"
        self.directory.mkdir()
        self._newest: Path | None = None

    def contender(self) -> Contender:
        return Contender(self._run)

    def totals(self) -> Totals:
        return totals(pl.read_parquet(f"{self._newest}/*.parquet"))

    def _run(self, number: int) -> None:
        events = self._spark.read.parquet(str(batch_directory(self._root, number)))
        rows: DataFrame = events.select("key", f.lit(1).cast("long").alias("events"), "amount", "text", "ts")
        if self._newest:
            rows = rows.unionByName(self._spark.read.parquet(str(self._newest)))
        state = (
            rows.repartition(PARALLELISM, "key")
            .groupBy("key")
            .agg(
                f.sum("events").alias("events"),
                f.sum("amount").alias("amount"),
                f.max_by("text", "ts").alias("text"),
                f.max("ts").alias("ts"),
            )
        )
        target = self.directory / str(number)
        state.write.parquet(str(target))
        if self._newest:
            shutil.rmtree(self._newest)
        self._newest = target


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


def partial(root: Path, number: int) -> pl.LazyFrame:
    return state_of(pl.scan_parquet(sorted(batch_directory(root, number).iterdir())))


def merged(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.group_by("key").agg(
        pl.col("events").sum(), pl.col("amount").sum(), pl.col("text").sort_by("ts").last(), pl.col("ts").max()
    )
