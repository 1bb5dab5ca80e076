"""Programs in a session of Spark on this machine: statelib, a stream with a state store, a table written anew."""

from pathlib import Path

from pyspark.sql import functions as f

from statelib.flows.checkpoint.steps import begin, check, register
from statelib.spark.snapshot.driver import run_snapshot
from tests.benchmarks.contenders import Streaming, new_session
from tests.benchmarks.events import interval
from tests.benchmarks.rewriting import SparkRewrite
from tests.benchmarks.state_columns import COLUMNS
from tests.benchmarks.thirty_days.keeper import Mode
from tests.benchmarks.thirty_days.statelib_keepers import deployed, exported


class SparkPipeline:
    """A pipeline of statelib: whole runs, from begin to register with the gate."""

    def __init__(self, root: Path, mode: Mode, setting: str) -> None:
        self._deployment, self._pipeline = deployed(root, mode, setting)
        self._spark = new_session(root)

    def day(self, number: int, batch: Path) -> None:
        checkpoint_id = begin(self._deployment, self._pipeline, interval(number), "bench").checkpoint_id
        run_snapshot(self._spark, self._deployment, self._pipeline, checkpoint_id)
        check(self._deployment, self._pipeline, checkpoint_id)
        register(self._deployment, self._pipeline, checkpoint_id)

    def export(self, target: Path) -> None:
        exported(self._deployment, self._pipeline, target)

    def close(self) -> None:
        self._spark.stop()


class StreamingQuery:
    """Structured Streaming with the RocksDB store, ``availableNow``: each day is a query from the checkpoint of the day
    before."""

    def __init__(self, root: Path, mode: Mode) -> None:
        self._spark = new_session(root)
        self._streaming = Streaming(self._spark, root)

    def day(self, number: int, batch: Path) -> None:
        contender = self._streaming.contender()
        if contender.before:
            contender.before(number)
        contender.turn(number)

    def export(self, target: Path) -> None:
        assert not self._spark.streams.active  # this starts what the reader of the store asks, in a new session
        self._streaming.rows().select(COLUMNS).write.mode("append").parquet(str(target))

    def close(self) -> None:
        self._spark.stop()


class Rewrite:
    """A Spark job that joins the state with the batch and writes all of it as Parquet."""

    def __init__(self, root: Path, mode: Mode) -> None:
        self._spark = new_session(root)
        self._rewrite = SparkRewrite(self._spark, root)

    def day(self, number: int, batch: Path) -> None:
        self._rewrite.contender().turn(number)

    def export(self, target: Path) -> None:
        rows = self._spark.read.parquet(str(self._rewrite.newest))
        rows.select(*(f.col(name) for name in COLUMNS)).write.mode("append").parquet(str(target))

    def close(self) -> None:
        self._spark.stop()
