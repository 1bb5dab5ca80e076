"""Rows P17: the same number of events onto state with 25 times as many keys (2 M and 50 M at full scale), RocksDB with
incremental checkpoints and local recovery. Processor seconds of the subtasks in this process, restore and snapshot
included. Before each turn the copies on the host are read, so that neither side waits for the disk.

``P17-windows`` has a tenth of the keys, and each has an open window with a timer that is not due. ``P17-ttl`` has a
tenth of the keys, too, with a time to live, and all of them are listed as those that expire next."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.benchmarks.events import VALUE, interval, new_deployment, new_pipeline
from tests.benchmarks.in_process import Subtasks
from tests.benchmarks.measure import Contender, Ratio, take_turns

ROWS = ("P17", "P17-windows", "P17-ttl")
KEYS = 2_000_000
TIMES = 25
BATCH = 20_000
LOADED = 5_000_000
"""The number of keys that one round of filling the state adds."""
WARMUPS = 1
SETTINGS = {"P17-windows": "\n    window: {time: at, tumbling: 20000d, retain: 1d}", "P17-ttl": "\n    ttl: 60d"}
"""What the state of a row has: a window that holds all events and stays open, or a time to live. Keys that were written
in the first round are listed from the round on that is half the time to live later."""
WORDS = {"P17-windows": " of windows", "P17-ttl": " with a time to live"}
LISTED = 32
"""The number of rounds after which all keys of ``P17-ttl`` are listed."""


def run(rows: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    ratios = []
    for row in rows:
        (root / row).mkdir()
        small = max(int(KEYS * scale / (10 if row in SETTINGS else 1)), 5_000)
        batch = max(int(BATCH * scale), 100)
        sizes = {"large": small * TIMES, "small": small}
        setting = SETTINGS.get(row, "")
        sides = {name: Grown(root / row / name, keys, batch, setting=setting) for name, keys in sizes.items()}
        warmups = LISTED if row == "P17-ttl" else WARMUPS
        figures = take_turns({name: side.contender() for name, side in sides.items()}, runs, warmups)
        per_key = 2 if row == "P17-windows" else 1
        wrong = [name for name, side in sides.items() if side.entries() != side.keys * per_key]
        note = f"{batch:,} events, {small:,} keys and {TIMES} times"
        note = f"INVALID, wrong number of entries: {wrong}" if wrong else note
        what = f"batch onto the large state{WORDS.get(row, '')}, RocksDB incremental"
        ratios.append(Ratio(row, what, "onto the small one", "≤ 1.5", "cpu s", figures["large"], figures["small"],
                            note=note))  # fmt: skip
    return ratios


class Grown:
    """A pipeline whose state has been filled with ``keys`` keys. ``more``: further keys of the pipeline file.
    ``setting``: further keys of the state."""

    def __init__(self, root: Path, keys: int, batch: int, more: str = "", *, setting: str = "") -> None:
        root.mkdir()
        self._has_windows = "window" in setting
        self.keys, self._batch, self._number = keys, batch, 0
        deployment = new_deployment(root)
        pipeline = new_pipeline(
            root,
            "rocksdb",
            "incremental",
            settings="local_recovery: true",
            more=more,
            state=VALUE + setting,
            columns="at: instant" if self._has_windows else "",
        )
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
        if self._has_windows:
            times = np.full(len(events), interval(self._number).start_ms)
            events = events.append_column("at", pa.array(times).cast(pa.timestamp("ms", "UTC")))
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
