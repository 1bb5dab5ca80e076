"""Contenders that keep the state as a table of files: a rewrite by Spark or polars, a MERGE by delta-rs."""

import shutil
from pathlib import Path

import polars as pl
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.benchmarks.checks import Totals, state_of_batch, totals
from tests.benchmarks.events import PARALLELISM, batch_directory
from tests.benchmarks.measure import Contender
from tests.benchmarks.merging import merge_by_delta, merged
from tests.benchmarks.state_columns import COLUMNS


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
        self.directory.mkdir(exist_ok=True)
        self.newest: Path | None = next(self.directory.iterdir(), None)

    def contender(self) -> Contender:
        return Contender(self._run)

    def totals(self) -> Totals:
        return totals(pl.read_parquet(f"{self.newest}/*.parquet"))

    def _run(self, number: int) -> None:
        events = self._spark.read.parquet(str(batch_directory(self._root, number)))
        rows: DataFrame = events.select("key", f.lit(1).cast("long").alias("events"), "amount", "text", "ts")
        if self.newest:
            rows = rows.unionByName(self._spark.read.parquet(str(self.newest)))
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
        if self.newest:
            shutil.rmtree(self.newest)
        self.newest = target


def partial(root: Path, number: int) -> pl.LazyFrame:
    return state_of_batch(batch_directory(root, number))
