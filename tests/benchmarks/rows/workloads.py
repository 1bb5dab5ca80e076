"""Rows W: other shapes of workload, by the heap and the RocksDB pipeline and by Structured Streaming's store.

``strings``: text as key; ``map``: a map of up to 100 texts per key, 20 keys for each 1,000 events; ``skewed``: half of
the events on one key in 60; ``p1`` and ``p4``: other parallelisms of ours (streaming keeps its two); ``moved``: ours
does not read the source by its subtasks; ``many``: 100 pipelines of 10 k keys, one after the other, beside one of 1 M
keys. Numbers of keys and sums are compared."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.benchmarks.contenders import EVENTS, Stateful, new_session
from tests.benchmarks.events import MAP, VALUE, batch_directory, new_deployment, new_pipeline, write_batches
from tests.benchmarks.measure import Contender, Ratio, take_turns
from tests.support.s3_endpoint import S3Endpoint

BATCH = 2_000_000
PIPELINES = 100
WARMUPS = 1


@dataclass(frozen=True)
class Workload:
    """A workload. ``keys``: the keys of the events; ``texts``: the parameter of :func:`write_batches`; ``by``: the
    columns by which streaming groups; ``endpoint``: where ours reads the events, in place of the file system."""

    what: str
    keys: float = 1.0
    key: str = "key"
    state: str = VALUE
    skew: float = 0.0
    texts: int = 0
    parallelism: int = 2
    by: tuple[str, ...] = ("key",)
    files: str = ""
    goal: str = "none"
    endpoint: S3Endpoint | None = None


WORKLOADS = {
    "W-strings": Workload("text as key", key="text", by=("text",)),
    "W-map": Workload("wide map state", keys=0.02, texts=100, state=MAP, by=("key", "text")),
    "W-skewed": Workload("skewed keys", skew=5.0),
    "W-p1": Workload("parallelism 1", parallelism=1),
    "W-p4": Workload("parallelism 4", parallelism=4),
    "W-moved": Workload("events moved by Spark", files="/[!_]*.parquet", goal="≤ 1/6"),
}
ROWS = (*WORKLOADS, "W-many")


def run(rows: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    spark = new_session(root)
    try:
        return [ratio for row in rows for ratio in _row(spark, row, root / row, runs, scale)]
    finally:
        spark.stop()


def _row(spark: SparkSession, row: str, root: Path, runs: int, scale: float) -> list[Ratio]:
    root.mkdir()
    if row == "W-many":
        return _many(spark, root, runs, scale)
    return ratios_of(spark, row, WORKLOADS[row], root, runs, scale)


def ratios_of(spark: SparkSession, row: str, load: Workload, root: Path, runs: int, scale: float) -> list[Ratio]:
    """Return the ratios of the heap and of the RocksDB pipeline."""
    events = max(int(BATCH * scale), 2_000)
    keys = max(int(events * load.keys), 10)
    write_batches(root, WARMUPS + runs, events, keys=keys, skew=load.skew, texts=load.texts)
    deployment, endpoints = new_deployment(root), []
    if load.endpoint:
        deployment, endpoints = (
            replace(deployment, data=_in_bucket(load.endpoint, root), storage_root="s3://events/state"),
            [load.endpoint.pid],
        )
    ours = {
        backend: Stateful(
            spark,
            deployment,
            new_pipeline(root, backend, key=load.key, state=load.state, parallelism=load.parallelism, files=load.files),
        )
        for backend in ("heap", "rocksdb")
    }
    streaming = Grouped(spark, root, load.by)
    contenders = {name: side.contender() for name, side in ours.items()}
    contenders["streaming"] = Contender(streaming.run, streaming.offer)
    figures = take_turns(contenders, runs, WARMUPS, without=endpoints)
    sums_of = {name: _sums(side.opened().to_arrow("activity", str(root / "scratch"))) for name, side in ours.items()}
    sums_of["streaming"] = streaming.sums()
    right = _right(root, WARMUPS + runs, load.by)
    wrong = {name: sums for name, sums in sums_of.items() if sums != right}
    note = f"INVALID, expected {right}, found {wrong}" if wrong else f"{events:,} events, {right[0]:,} entries"
    return [
        Ratio(row, f"{load.what}, {name}", "Structured Streaming", load.goal, "cpu s", figures[name],
              figures["streaming"], note=note)
        for name in ours
    ]  # fmt: skip


def _in_bucket(endpoint: S3Endpoint, root: Path) -> str:
    """Copy the batches into a new bucket, and return the URI for the deployment's ``data``."""
    endpoint.make_bucket("events")
    for file in (root / "data").rglob("*.parquet"):
        endpoint.put_object("events", str(file.relative_to(root)), file.read_bytes())
    return "s3://events/data"


def _many(spark: SparkSession, root: Path, runs: int, scale: float) -> list[Ratio]:
    count = max(int(PIPELINES * scale), 2)
    sides: dict[str, list[Stateful]] = {}
    for name, pipelines, events in (("many", count, 10_000), ("one", 1, 10_000 * count)):
        (directory := root / name).mkdir()
        write_batches(directory, WARMUPS + runs, events)
        deployment = new_deployment(directory)
        made = [new_pipeline(directory, "heap", name=f"{name}_{n}") for n in range(pipelines)]
        sides[name] = [Stateful(spark, deployment, pipeline) for pipeline in made]
    figures = take_turns({name: _all([s.contender() for s in group]) for name, group in sides.items()}, runs, WARMUPS)
    sums = {name: {_sums(s.opened().to_arrow("activity"))[1] for s in group} for name, group in sides.items()}
    right = {"many": {10_000 * (WARMUPS + runs)}, "one": {10_000 * count * (WARMUPS + runs)}}
    note = f"{count} of 10,000 events each" if sums == right else f"INVALID, events {sums}"
    what, against = "many small pipelines", "one of as many events"
    return [Ratio("W-many", what, against, "none", "cpu s", figures["many"], figures["one"], note=note)]


def _all(group: list[Contender]) -> Contender:
    def each(step: str, number: int) -> None:
        for one in group:
            getattr(one, step)(number)

    return Contender(*(lambda number, step=step: each(step, number) for step in ("turn", "before", "after")))


class Grouped:
    """The contender that computes the same aggregates by Structured Streaming."""

    def __init__(self, spark: SparkSession, root: Path, by: tuple[str, ...]) -> None:
        self._spark, self._root, self._by = spark, root, by
        self._source, self._checkpoint = root / "stream-source", root / "stream-checkpoint"
        self._source.mkdir()

    def offer(self, number: int) -> None:
        for file in sorted(batch_directory(self._root, number).iterdir()):
            (self._source / f"{number}-{file.name}").hardlink_to(file)

    def run(self, _: int) -> None:
        rows: DataFrame = self._spark.readStream.schema(EVENTS).parquet(str(self._source))
        states = rows.groupBy(*self._by).agg(
            f.count(f.lit(1)).alias("events"), f.sum("amount").alias("amount"), f.max_by("text", "ts").alias("text")
        )
        query = states.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        query.option("checkpointLocation", str(self._checkpoint)).start().awaitTermination()

    def sums(self) -> tuple[int, int, float]:
        store = self._spark.read.format("statestore").load(str(self._checkpoint))
        names = store.schema["value"].dataType.fieldNames()  # type: ignore[attr-defined]
        row = store.agg(f.count(f.lit(1)), *(f.sum(f.col(f"value.`{name}`")) for name in names[:2])).collect()[0]
        return row[0], row[1], row[2]


def _sums(state: pa.Table) -> tuple[int, int, float]:
    held = pl.DataFrame(state.select(["value"])).unnest("value")
    return held.select(pl.len(), pl.col("events").sum(), pl.col("amount").sum()).row(0)


def _right(root: Path, rounds: int, by: tuple[str, ...]) -> tuple[int, int, float]:
    files = [file for number in range(rounds) for file in batch_directory(root, number).iterdir()]
    events = pl.read_parquet(files)
    return events.select(pl.struct(by).n_unique(), pl.len(), pl.col("amount").sum()).row(0)
