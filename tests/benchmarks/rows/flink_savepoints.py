"""Rows P7 to P10 and P14: the same 5 M Long -> Long entries written and restored by statelib and by a real Flink.

Wall seconds, one subtask, Flink's cluster warm and its restores touching nothing; ours in this process, but for P14,
which has three subtasks at once on both sides. Flink's restore includes submitting the job (some tenths of a second).
Counts of entries are compared on both sides."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange, subtask_range
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.savepoints.opened import open_checkpoint
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategy import take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.testing.checkpoint_chain import CheckpointChain
from tests.benchmarks.measure import Ratio
from tests.interop.flink_kit import Case, Flink, NoFlink, OperatorToSee, Order, StateToSee, WarmCluster, flink
from tests.support.stored_longs import SCHEMA, UID, store_longs

ENTRIES = 5_000_000
VERSION = "1.20.5"
ROWS = ("P7", "P8", "P9", "P10", "P14")
GOALS = {"P7": "≤ 1.0", "P8": "≤ 1/10", "P9": "≤ 1.0", "P10": "≤ 1/8", "P14": "≤ 1.0"}
WHOLE = KeyGroupRange(0, 127)
OPERATOR = OperatorToSee(UID, "long", (StateToSee("counts", "value", "long"),))
Turn = Callable[[int], float]


def run(rows: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    entries = max(int(ENTRIES * scale), 10_000)
    try:
        real = flink(VERSION)
    except NoFlink as reason:
        return [_row(row, "not measured", f"Flink {VERSION}", (), (), str(reason)) for row in rows]
    with real.warm() as cluster, closing(Sides(real, cluster, root, entries)) as sides:
        return [_measured(row, sides, runs) for row in ROWS if row in rows]


class Sides:
    """Both sides of the comparison. Each turn returns its seconds, and raises RuntimeError if the number of entries
    is wrong."""

    def __init__(self, real: Flink, cluster: WarmCluster, root: Path, entries: int) -> None:
        self._real, self._cluster, self._root, self.entries = real, cluster, root, entries
        self.ours = store_longs(root / "ours", entries, 1)
        answer = cluster.restore(self.ours, UID, "long", 1, target=root / "flink")
        self.theirs = Path(str(answer["savepoint"]).removeprefix("file:"))
        self._held: HeapKeyedStateBackend | None = None
        self._chain = CheckpointChain(root / "chain")
        self._incremental: Path | None = None
        self._subtasks: ProcessPoolExecutor | None = None

    def close(self) -> None:
        if self._subtasks is not None:
            self._subtasks.shutdown()

    def turns(self, row: str) -> tuple[str, Turn, str, Turn]:
        if row == "P7":
            return "canonical savepoint, heap", self._write, "Flink's, hashmap", self._flink_writes
        if row == "P8":
            return self._restores("uncompressed", self.theirs)
        if row == "P9":
            return self._restores("Snappy-framed", self.ours)
        if row == "P10":
            ours, theirs = (lambda _, path=path: self._flink_restores(path) for path in (self.ours, self.theirs))
            return "statelib's savepoint restored by Flink", ours, "its own", theirs
        path = self.incremental()
        return (
            "rescale 2 to 3 from an incremental checkpoint", lambda n: self._rescale(path, n),
            "Flink, RocksDB", lambda _: self._flink_restores(path, 3, "rocksdb"),
        )  # fmt: skip

    def incremental(self) -> Path:
        """Return a checkpoint of two subtasks by Flink's RocksDB, with shared files."""
        if self._incremental is None:
            case = Case(self.ours, (OPERATOR,), "rocksdb", 2)
            order = Order(
                case, self._root / "incremental", ("CHECKPOINT",), {"execution.checkpointing.incremental": "true"}
            )
            ((self._incremental,),) = self._real.write_again([order])
        return self._incremental

    def _restores(self, what: str, path: Path) -> tuple[str, Turn, str, Turn]:
        def ours(_: int) -> float:
            return self._timed(lambda: restore_heap(SCHEMA, WHOLE, open_checkpoint(str(path)).select(UID).sources()))

        return f"canonical restore, {what}", ours, "Flink, same file, hashmap", lambda _: self._flink_restores(path)

    def _write(self, number: int) -> float:
        if self._held is None:
            self._held = restore_heap(SCHEMA, WHOLE, open_checkpoint(str(self.ours)).select(UID).sources())
        strategy = CanonicalSnapshotStrategy(self._held)
        began = time.perf_counter()
        take_snapshot(strategy, CheckpointId(number + 1), self._chain.streams(number + 1), CloseableRegistry())
        return time.perf_counter() - began

    def _flink_writes(self, number: int) -> float:
        answer = self._cluster.restore(self.ours, UID, "long", 1, target=self._root / f"flink-{number}")
        return float(str(answer["savepointMs"])) / 1000

    def _flink_restores(self, path: Path, parallelism: int = 1, backend: str = "hashmap") -> float:
        began = time.perf_counter()
        answer = self._cluster.restore(path, UID, "long", parallelism, backend=backend)
        seconds = time.perf_counter() - began
        self._check(answer["entries"], "Flink")
        return seconds

    def _rescale(self, path: Path, number: int) -> float:
        """Rescale with three subtasks at once, as many as Flink has, each in a warm process of its own, as in
        Spark."""
        if self._subtasks is None:
            self._subtasks = ProcessPoolExecutor(3, get_context("spawn"))
            list(self._subtasks.map(time.sleep, [1.0] * 3))
        directories = [str(self._root / f"rescaled-{number}-{subtask}") for subtask in range(3)]
        began = time.perf_counter()
        held = self._subtasks.map(_restore_subtask, [str(path)] * 3, range(3), directories)
        self._check(sum(held), "statelib")
        return time.perf_counter() - began

    def _timed(self, restore: Callable[[], Any]) -> float:
        began = time.perf_counter()
        backend = restore()
        seconds = time.perf_counter() - began
        self._check(backend.statistics()[0].total_entries, "statelib")
        backend.close()
        return seconds

    def _check(self, values: object, who: str) -> None:
        if values != self.entries:
            raise RuntimeError(f"{who} restored {values} entries, expected {self.entries}")


def _restore_subtask(path: str, subtask: int, directory: str) -> int:
    """Restore one of three subtasks, and return its number of entries."""
    key_groups = subtask_range(subtask, 3, SCHEMA.max_parallelism)
    sources = open_checkpoint(path, storage_root=str(Path(path).parents[1])).select(UID).sources()
    wanted = [s for s in sources if len(s.handle.key_group_range.intersection(key_groups))]
    backend = restore_rocksdb(SCHEMA, key_groups, wanted, directory, "b")
    entries = backend.statistics()[0].total_entries
    backend.close()
    return entries


def _measured(row: str, sides: Sides, runs: int) -> Ratio:
    """Return a measured row. A row that fails has the error, and the cluster stays usable for the others."""
    try:
        what, ours, against, theirs = sides.turns(row)
        seconds = [(ours(number), theirs(number)) for number in range(1 + runs)][1:]
    except Exception as error:
        return _row(row, "not measured", "Flink", (), (), f"FAILED: {str(error)[:300]}".replace("\n", " "))
    a, b = (tuple(pair[side] for pair in seconds) for side in (0, 1))
    return _row(row, what, against, a, b, f"{sides.entries:,} entries, Flink {VERSION}")


def _row(row: str, what: str, against: str, ours: tuple[float, ...], theirs: tuple[float, ...], note: str) -> Ratio:
    return Ratio(row, what, against, GOALS[row], "wall s", ours, theirs, note=note)
