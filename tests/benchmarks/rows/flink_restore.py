"""Rows flink-scan: a savepoint that a real Flink wrote, as a DataFrame, beside Flink's own restore of that savepoint.

The warm cluster of one process restores into its heap and touches nothing; the warm Spark session sums up every key and
every value. Both have two subtasks or cores. Flink writes the savepoint itself, by restoring ours: uncompressed, as it
does by default. The one that statelib writes, Snappy-framed, is measured as well. Counts are compared.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import statelib.spark
from tests.benchmarks.contenders import new_session
from tests.benchmarks.measure import Contender, Ratio, Unit, take_turns
from tests.interop.flink_kit import NoFlink, WarmCluster, flink
from tests.support.stored_longs import UID, long_columns, store_longs

ENTRIES = 5_000_000
WARMUPS = 1
PARALLELISM = 2
VERSION = "1.20.5"
ROWS = ("flink-scan",)


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    """Return the ratios in processor seconds and in seconds; if there is no Flink, one row with the reason."""
    entries = max(int(ENTRIES * scale), 10_000)
    try:
        real = flink(VERSION)
    except NoFlink as reason:
        return [Ratio(ROWS[0], "not measured", f"Flink {VERSION}", "none", "wall s", (), (), note=str(reason))]
    ours = store_longs(root / "state", entries, PARALLELISM)
    with real.warm() as cluster, _session(root) as read:
        theirs = _written_by_flink(cluster, ours, root / "flink")
        return [
            ratio
            for savepoint, what in ((theirs, "Flink's own savepoint"), (ours, "statelib's savepoint, Snappy-framed"))
            for ratio in _measured(Scan(cluster, read(savepoint), savepoint, entries), what, runs)
        ]


@contextmanager
def _session(root: Path) -> Iterator[Callable[[Path], DataFrame]]:
    spark = new_session(root)
    try:
        statelib.spark.register(spark)
        yield lambda path: spark.read.format("statelib").option("columns", "key,value").load(str(path))
    finally:
        spark.stop()


def _written_by_flink(cluster: WarmCluster, savepoint: Path, target: Path) -> Path:
    answer = cluster.restore(savepoint, UID, "long", PARALLELISM, target=target)
    return Path(str(answer["savepoint"]).removeprefix("file:"))


class Scan:
    """The two ways through one savepoint. ``walls``: seconds of each turn of either; ``wrong``: the contenders that
    counted wrongly."""

    def __init__(self, cluster: WarmCluster, frame: DataFrame, savepoint: Path, entries: int) -> None:
        self._cluster, self._frame, self._savepoint, self.entries = cluster, frame, savepoint, entries
        columns = long_columns(entries)
        self._right = (entries, pc.sum(columns["key"]).as_py(), pc.sum(columns["value"]).as_py())
        self.walls: dict[str, list[float]] = {"statelib": [], "flink": []}
        self.wrong: dict[str, object] = {}

    def contenders(self) -> dict[str, Contender]:
        turns = {"statelib": self._summed, "flink": self._restored}
        return {name: Contender(partial(self._timed, name, turn)) for name, turn in turns.items()}

    def _timed(self, name: str, turn: Callable[[], bool], _: int) -> None:
        started = time.perf_counter()
        if not turn():
            self.wrong[name] = self._savepoint.name
        self.walls[name].append(time.perf_counter() - started)

    def _summed(self) -> bool:
        (row,) = self._frame.agg(f.count(f.lit(1)), f.sum("key"), f.sum("value")).collect()
        return tuple(row) == self._right

    def _restored(self) -> bool:
        return self._cluster.restore(self._savepoint, UID, "long", PARALLELISM)["entries"] == self.entries


def _measured(scan: Scan, what: str, runs: int) -> list[Ratio]:
    """Return the ratios of the same turns in both units."""
    cpu = take_turns(scan.contenders(), runs, WARMUPS)
    wall = {name: tuple(times[-runs:]) for name, times in scan.walls.items()}
    rates = {name: scan.entries / median(times) / 1e6 for name, times in wall.items()}
    note = f"{rates['statelib']:.2f} M entries/s, Flink {rates['flink']:.2f}"
    if scan.wrong:
        note = f"INVALID, wrong counts or sums: {scan.wrong}"
    what = f"{what}, {scan.entries:,} entries, format statelib, local[{PARALLELISM}]"
    against = f"Flink {VERSION}'s restore of it, hashmap, p{PARALLELISM}"
    units: tuple[tuple[Unit, dict[str, tuple[float, ...]]], ...] = (("cpu s", cpu), ("wall s", wall))
    return [
        Ratio(ROWS[0], what, against, "none", unit, seconds_of["statelib"], seconds_of["flink"], note=note)
        for unit, seconds_of in units
    ]
