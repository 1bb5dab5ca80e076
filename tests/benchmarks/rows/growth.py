"""Row P17: the same number of events onto state with 25 times as many keys (2 M and 50 M at full scale), RocksDB with
incremental checkpoints and local recovery. Processor seconds of the subtasks in this process, restore and snapshot
included. Before each turn the copies on the host are read, so that neither side waits for the disk."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.benchmarks.events import new_deployment, new_pipeline
from tests.benchmarks.in_process import Subtasks
from tests.benchmarks.measure import Contender, Ratio, take_turns

ROWS = ("P17",)
KEYS = 2_000_000
TIMES = 25
BATCH = 20_000
LOADED = 5_000_000
"""The number of keys that one round of filling the state adds."""
WARMUPS = 1


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    small = max(int(KEYS * scale), 5_000)
    batch = max(int(BATCH * scale), 100)
    sides = {name: Grown(root / name, keys, batch) for name, keys in (("large", small * TIMES), ("small", small))}
    figures = take_turns({name: side.contender() for name, side in sides.items()}, runs, WARMUPS)
    wrong = [name for name, side in sides.items() if side.entries() != side.keys]
    note = f"INVALID, wrong number of keys: {wrong}" if wrong else f"{batch:,} events, {small:,} keys and {TIMES} times"
    return [Ratio("P17", "batch onto the large state, RocksDB incremental", "onto the small one", "≤ 1.5", "cpu s",
                  figures["large"], figures["small"], note=note)]  # fmt: skip


class Grown:
    """A pipeline whose state has been filled with ``keys`` keys. ``more``: further keys of the pipeline file."""

    def __init__(self, root: Path, keys: int, batch: int, more: str = "") -> None:
        root.mkdir()
        self.keys, self._batch, self._number = keys, batch, 0
        deployment = new_deployment(root)
        pipeline = new_pipeline(root, "rocksdb", "incremental", settings="local_recovery: true", more=more)
        self._subtasks = Subtasks(deployment, pipeline)
        self._host = Path(deployment.work_directory)
        for start in range(0, keys, LOADED):
            self._before(np.arange(start, min(start + LOADED, keys)))
            self._subtasks.apply()
            self._subtasks.finish()

    def contender(self) -> Contender:
        random = np.random.default_rng(1)
        return Contender(
            lambda _: self._subtasks.apply(),
            lambda _: self._before(random.integers(0, self.keys, self._batch), warm=True),
            lambda _: self._subtasks.finish(),
        )

    def contender_of_whole_runs(self) -> Contender:
        """Return the contender whose turns are whole runs with the gate."""
        random = np.random.default_rng(1)
        events: list[pa.Table] = []

        def turn(_: int) -> None:
            self._prepare(events.pop())
            self._subtasks.apply()
            self._subtasks.finish(judged=True)

        def before(_: int) -> None:
            events.append(events_of(self._number, random.integers(0, self.keys, self._batch)))
            self._warm()

        return Contender(turn, before)

    def entries(self) -> int:
        return sum(statistics.total_entries for report in self._subtasks.reports for statistics in report.statistics)

    def uploaded_bytes(self) -> int:
        """Return the bytes that the last run wrote to the storage."""
        return sum(report.uploaded_bytes for report in self._subtasks.reports)

    def _before(self, keys: np.ndarray, *, warm: bool = False) -> None:
        self._prepare(events_of(self._number, keys))
        if warm:
            self._warm()

    def _prepare(self, events: pa.Table) -> None:
        self._subtasks.prepare(self._number, events)
        self._number += 1

    def _warm(self) -> None:
        for table in self._host.rglob("*.sst"):
            table.read_bytes()


def events_of(number: int, keys: np.ndarray) -> pa.Table:
    """Return the events of round ``number``, one for each of ``keys``."""
    times = np.arange(len(keys)) + number * LOADED
    texts = pa.array(np.char.add("text-of-", np.char.zfill(keys.astype("U8"), 8)))
    return pa.table({"key": keys, "amount": keys / 4, "ts": times, "text": texts})
