"""Row P6: a user function on Arrow batches, 2 M events onto as many keys, against the same function key by key in
Spark's ``transformWithStateInPandas``, which gets a sample of the events; its figure is scaled up."""

from collections.abc import Iterable
from pathlib import Path

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from tests.benchmarks.contenders import EVENTS, Stateful, new_session
from tests.benchmarks.events import batch_directory, new_deployment, new_pipeline, write_batches
from tests.benchmarks.functions import FIELDS, REFERENCE, processor
from tests.benchmarks.measure import Contender, Ratio, take_turns

ROWS = ("P6",)
BATCH = 2_000_000
SAMPLE = 20
WARMUPS = 1
STATE = (
    f"    kind: value\n    function: {REFERENCE}\n    fields: {{{', '.join(f'{n}: {t}' for n, t in FIELDS.items())}}}"
)


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    events = max(int(BATCH * scale), 2_000)
    sample = root / "sample"
    sample.mkdir()
    write_batches(root, WARMUPS + runs, events)
    write_batches(sample, WARMUPS + runs, events // SAMPLE)
    spark = new_session(root)
    try:
        deployment = new_deployment(root)
        pipeline = new_pipeline(root, "heap", name="bench_function", state=STATE)
        ours, theirs = Stateful(spark, deployment, pipeline), ByKey(spark, sample)
        figures = take_turns({"ours": ours.contender(), "theirs": Contender(theirs.run, theirs.offer)}, runs, WARMUPS)
        held = pl.DataFrame(ours.opened().to_arrow("activity").select(["key", "value"])).unnest("value")
        totals = held.select(pl.len(), pl.col("events").sum(), pl.col("amount").sum()).row(0), theirs.totals
    finally:
        spark.stop()
    right = tuple(_right(where, WARMUPS + runs) for where in (root, sample))
    note = f"{events:,} events" if totals == right else f"INVALID, expected {right}, found {totals}"
    what, against = "user function on Arrow batches, heap", f"transformWithStateInPandas, 1/{SAMPLE} of the events"
    return [Ratio("P6", what, against, "≤ 1/10", "cpu s", figures["ours"], figures["theirs"], SAMPLE, note)]


class ByKey:
    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root = spark, root
        self._source = root / "source"
        self._source.mkdir()
        self._seen: dict[int, tuple[int, float]] = {}

    @property
    def totals(self) -> tuple[int, int, float]:
        values = self._seen.values()
        return len(values), sum(events for events, _ in values), sum(amount for _, amount in values)

    def offer(self, number: int) -> None:
        for file in sorted(batch_directory(self._root, number).iterdir()):
            (self._source / f"{number}-{file.name}").hardlink_to(file)

    def run(self, _: int) -> None:
        rows = self._spark.readStream.schema(EVENTS).parquet(str(self._source))
        states = rows.groupBy("key").transformWithStateInPandas(
            statefulProcessor=processor(),
            outputStructType="key long, events long, amount double",
            outputMode="Update",
            timeMode="None",
        )
        query = states.writeStream.outputMode("update").foreachBatch(self._keep)
        query = query.option("checkpointLocation", str(self._root / "checkpoint")).trigger(availableNow=True)
        query.start().awaitTermination()

    def _keep(self, states: DataFrame, _: int) -> None:
        self._seen |= {key: (events, amount) for key, events, amount in states.toLocalIterator()}


def _right(root: Path, rounds: int) -> tuple[int, int, float]:
    files = [file for number in range(rounds) for file in batch_directory(root, number).iterdir()]
    return pl.read_parquet(files).select(pl.col("key").n_unique(), pl.len(), pl.col("amount").sum()).row(0)
