"""Row P15: a canonical savepoint of 5 M Long -> Long entries as a DataFrame, beside the same rows as Parquet.

Both are summed up whole in one warm session of two cores: every key and every value reaches the JVM. A wrong count
or sum is noted in the row."""

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import statelib.spark
from tests.benchmarks.contenders import new_session
from tests.benchmarks.measure import Contender, Ratio, Unit, take_turns
from tests.support.stored_longs import long_columns, store_longs

ENTRIES = 5_000_000
WARMUPS = 2
FILES = 2
"""The number of files of either form: one for each core."""
ROWS = ("P15",)


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    """Return the ratio in processor seconds, and that in seconds, with the entries read in one second."""
    entries = max(int(ENTRIES * scale), 10_000)
    columns = long_columns(entries)
    savepoint, parquet = store_longs(root / "state", entries, FILES), root / "parquet"
    parquet.mkdir()
    for number in range(FILES):
        part = columns.slice(number * entries // FILES, (number + 1) * entries // FILES - number * entries // FILES)
        pq.write_table(part, parquet / f"{number}.parquet")
    right = (entries, pc.sum(columns["key"]).as_py(), pc.sum(columns["value"]).as_py())
    spark = new_session(root)
    try:
        statelib.spark.register(spark)
        frames = {
            "statelib": spark.read.format("statelib").option("columns", "key,value").load(str(savepoint)),
            "parquet": spark.read.parquet(str(parquet)),
        }
        wrong: dict[str, object] = {}
        turns = {name: Contender(_summed(frame, right, wrong, name)) for name, frame in frames.items()}
        units: tuple[Unit, ...] = ("cpu s", "wall s")
        figures = {unit: take_turns(turns, runs, WARMUPS, unit) for unit in units}
    finally:
        spark.stop()
    rate = entries / median(figures["wall s"]["statelib"]) / 1e6
    note = f"INVALID, wrong sums: {wrong}" if wrong else f"{rate:.2f} M entries/s, local[2]"
    what, against = f"savepoint of {entries:,} entries, format statelib", "Parquet, the same rows"
    return [
        Ratio("P15", what, against, "≤ 3", unit, result["statelib"], result["parquet"], note=note)
        for unit, result in figures.items()
    ]


def _summed(frame: DataFrame, right: tuple[int, ...], wrong: dict[str, object], name: str) -> Callable[[int], None]:
    def turn(_: int) -> None:
        (row,) = frame.agg(f.count(f.lit(1)), f.sum("key"), f.sum("value")).collect()
        if tuple(row) != right:
            wrong[name] = (tuple(row), right)

    return turn
