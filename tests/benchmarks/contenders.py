"""The contenders of the Spark rows: a statelib pipeline, the stateless floor, Structured Streaming."""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark import SparkConf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.spark.events.source import SourcePlaces, read_interval
from statelib.spark.session.local_session import with_daemon
from statelib.spark.snapshot.driver import run_snapshot
from tests.benchmarks.checks import WEIGHTS, Totals, of_statelib
from tests.benchmarks.events import PARALLELISM, batch_directory, interval
from tests.benchmarks.measure import Contender

EVENTS = "key long, amount double, ts long, text string"


class Stateful:
    """A pipeline's snapshot job: restore the last checkpoint, apply the batch, write the next one.
    ``begin`` and ``register`` are the tasks before and after it and are not measured."""

    def __init__(self, spark: SparkSession, deployment: Deployment, pipeline: Pipeline) -> None:
        self._spark, self._deployment, self._pipeline = spark, deployment, pipeline
        self._checkpoint = CheckpointId(0)

    def contender(self) -> Contender:
        return Contender(self._run, self._begin, self._register)

    def opened(self) -> Checkpoint:
        """Return the newest checkpoint, opened."""
        records = self._deployment.catalog().list(self._pipeline.name)
        newest = max(records, key=lambda r: r.checkpoint_id)
        return open_checkpoint(newest.directory, storage_root=self._deployment.storage_root)

    def totals(self) -> Totals:
        return of_statelib(self.opened().to_arrow("activity", self._deployment.work_directory))

    def _begin(self, number: int) -> None:
        self._checkpoint = begin(self._deployment, self._pipeline, interval(number), "bench").checkpoint_id

    def _run(self, _: int) -> None:
        run_snapshot(self._spark, self._deployment, self._pipeline, self._checkpoint)

    def _register(self, _: int) -> None:
        register(self._deployment, self._pipeline, self._checkpoint)


class Floor:
    """The lowest possible cost on Spark: the same events, read in the same way, moved through Spark's shuffle by key
    and into a Python worker as Arrow, where they are only counted."""

    def __init__(self, spark: SparkSession, deployment: Deployment, pipeline: Pipeline) -> None:
        self._spark, self._deployment, self._pipeline = spark, deployment, pipeline

    def contender(self) -> Contender:
        return Contender(self._run)

    def _run(self, number: int) -> None:
        events = read_interval(self._spark, self._pipeline, SourcePlaces.of(self._deployment), interval(number))
        events.repartition(PARALLELISM, f.col("key")).mapInArrow(_count, "events long").collect()


class Streaming:
    """Structured Streaming with the RocksDB state store: the same aggregates by Spark's own functions,
    ``availableNow``, one micro-batch per turn, the same number of partitions, output thrown away. Like ours, a turn
    starts from the last checkpoint and ends with the next one."""

    def __init__(self, spark: SparkSession, root: Path, *, changelog: bool = False) -> None:
        name = "streaming-changelog" if changelog else "streaming"
        self._spark, self._root, self._changelog = spark, root, changelog
        self._source, self.checkpoint = root / f"{name}-source", root / f"{name}-checkpoint"
        self._source.mkdir(exist_ok=True)

    def rows(self) -> DataFrame:
        """Return ``key, events, amount, text, ts`` from the store itself: Spark keeps count, sum, text with its order,
        and time, in the order of the query."""
        store = self._spark.read.format("statestore").load(str(self.checkpoint))
        names = store.schema["value"].dataType.fieldNames()  # type: ignore[attr-defined]
        values = {"events": names[0], "amount": names[1], "text": names[2], "ts": names[4]}
        columns = [f.col(f"value.`{held}`").alias(name) for name, held in values.items()]
        return store.select(f.col("key.key").alias("key"), *columns)

    def totals(self) -> Totals:
        key, ts = f.col("key"), f.col("ts")
        right = f.col("text") == f.concat(f.lit("text-of-"), f.lpad(key.cast("string"), 8, "0"))
        sums = (f.count_if(right), f.sum("events"), f.sum("amount"), f.sum("ts"), f.sum(ts * (key % WEIGHTS)))
        row = self.rows().agg(*sums).collect()[0]
        return row[0], row[1], row[2], row[3], row[4]

    def contender(self) -> Contender:
        return Contender(self._run, self._offer)

    def _offer(self, number: int) -> None:
        for file in sorted(batch_directory(self._root, number).iterdir()):
            os.link(file, self._source / f"{number}-{file.name}")

    def _run(self, _: int) -> None:
        name = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
        self._spark.conf.set(name, str(self._changelog).lower())
        events = self._spark.readStream.schema(EVENTS).parquet(str(self._source))
        states = events.groupBy("key").agg(
            f.count(f.lit(1)).alias("events"),
            f.sum("amount").alias("amount"),
            f.max_by("text", "ts").alias("text"),
            f.max("ts").alias("ts"),
        )
        query = (
            states.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def new_session(root: Path, environment: Mapping[str, str] = {}) -> SparkSession:
    """Return a session with two cores, the settings of statelib's own jobs, and the RocksDB store for streaming.
    ``environment``: more variables for its Python workers."""
    checkout = str(Path(__file__).resolve().parents[2])
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": checkout}
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark = (
        SparkSession.builder.config(conf=with_daemon(SparkConf()))
        .master(f"local[{PARALLELISM}]")
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.local.dir", str(root / "spark"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .config("spark.sql.adaptive.coalescePartitions.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(PARALLELISM))
        .config("spark.sql.streaming.stateStore.providerClass", provider)
        .config(map={f"spark.executorEnv.{name}": value for name, value in environment.items()})
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _count(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    events = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"events": [events]})
