"""A keeper: a program that keeps the state of the workload, one day after the other, and the list of all of them."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol

Mode = Literal["warm", "cold"]
MODES: tuple[Mode, ...] = ("warm", "cold")
"""``warm``: one process applies all days. ``cold``: each day has a new process on a host without local copies."""

LOCAL = ("scratch", "local", "spark")
"""The directories below a keeper's own that are on the host, not on the storage: a cold day begins without them."""


class Keeper(Protocol):
    """A program that keeps the state. It is made with a directory of its own, which may have the state already, and
    the mode."""

    def day(self, number: int, batch: Path) -> None:
        """Apply the events in the Parquet files of a directory, and make the result durable. Day 0 fills the state."""

    def export(self, target: Path) -> None:
        """Write :data:`~tests.benchmarks.state_columns.COLUMNS` of all keys into Parquet files in a directory."""

    def close(self) -> None:
        """End the program."""


@dataclass(frozen=True)
class Entrant:
    """A line of the scoreboard. ``program``: the class of its keeper, as module and name; ``setting``: an argument of
    it; ``is_apart``: whether its package is in the environment ``.work/rivals``."""

    name: str
    program: str
    setting: str = ""
    is_apart: bool = False

    def keeper(self, root: Path, mode: Mode) -> Keeper:
        module, _, name = self.program.partition(":")
        program = getattr(import_module(f"tests.benchmarks.thirty_days.{module}"), name)
        keeper: Keeper = program(root, mode, self.setting) if self.setting else program(root, mode)
        return keeper


ENTRANTS = (
    Entrant("statelib on Spark, RocksDB incremental", "spark_keepers:SparkPipeline", "rocksdb"),
    Entrant("statelib on Spark, heap with changelog", "spark_keepers:SparkPipeline", "heap"),
    Entrant("statelib on Spark, blind", "spark_keepers:SparkPipeline", "blind"),
    Entrant("statelib without Spark, RocksDB incremental", "statelib_keepers:InProcess", "rocksdb"),
    Entrant("statelib without Spark, heap with changelog", "statelib_keepers:InProcess", "heap"),
    Entrant("statelib without Spark, blind", "statelib_keepers:InProcess", "blind"),
    Entrant("Structured Streaming, RocksDB store", "spark_keepers:StreamingQuery"),
    Entrant("Spark rewrite, join and overwrite", "spark_keepers:Rewrite"),
    Entrant("delta-rs MERGE", "table_keepers:DeltaTableKeeper"),
    Entrant("pyiceberg upsert", "table_keepers:IcebergTable"),
    Entrant("DuckDB upsert", "duckdb_keeper:DuckDbFile"),
    Entrant("PyPaimon aggregation table", "paimon_keeper:PaimonTable", is_apart=True),
    Entrant("SlateDB get and put", "slatedb_keeper:SlateDb", is_apart=True),
)
