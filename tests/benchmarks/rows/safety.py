"""Rows G11: what safety costs, of a checkpoint's own time and beside checkpoints without verification.

A turn is a whole checkpoint of one subtask, without Spark: begin, restore from the one before, apply the events,
snapshot, publish, register. Verified are CRC-32C and XXH3 of every byte that is written, of every local file that is
referred to again instead, and CRC-32C of every byte that is restored. Counts and digests of the entries, and the gate,
which reads everything back and is a task of its own, are not what is measured.

Turns of the same work differ by more than verification takes. So the goal is held by a stopwatch in each turn: its time
over what is left of it without the calls that verify (reading a local file again is one). The same turns beside others
that compare sizes only say whether something was left out.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.restore.stored import proof
from statelib.snapshots.strategies.rocksdb import incremental
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from statelib.storage import streams
from statelib.storage.filesystem import reader
from statelib.wire.checksum import ContentHash, crc32c
from tests.benchmarks.measure import Contender, Ratio, Unit, take_turns
from tests.support.figures import record

ROWS = ("G11",)
WARMUPS = 2
KEYS, EVENTS = 1_000_000, 200_000
VERIFIED, UNVERIFIED = "verified", "sizes only"
PIPELINE = """\
name: {name}
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{key: long, amount: long}}}}
key: [key]
states:
  total: {{kind: value, value: {{agg: sum, of: amount}}}}
  most: {{kind: reducing, value: {{agg: max, of: amount}}}}
backend: {backend}
checkpoint: {{strategy: {strategy}}}
"""
SETTINGS = (("heap", "canonical"), ("rocksdb", "full"), ("rocksdb", "incremental"))
UNITS: tuple[Unit, ...] = ("cpu s", "wall s")


class Stopwatch:
    """A stopwatch for calls: processor time of each thread, or wall time, of all threads."""

    def __init__(self, unit: Unit) -> None:
        self._clock = time.perf_counter if unit == "wall s" else time.thread_time
        self._lock = threading.Lock()
        self.spent = 0.0

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def through(*arguments: Any) -> Any:
            started = self._clock()
            try:
                return call(*arguments)
            finally:
                with self._lock:
                    self.spent += self._clock() - started

        return through


class NoHash:
    """A replacement for :class:`~statelib.wire.checksum.ContentHash` that computes nothing."""

    crc32c = xxh3 = 0

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Do nothing."""


def unverified() -> ExitStack:
    """Return a context in which nothing is verified. Snapshots that were written in it can only be read in it."""

    def same(_uploads: object, _path: str, expected: Any) -> Any:
        return expected

    def none(_data: object, _value: int = 0) -> int:
        return 0

    return _instead(NoHash, none, same)


def watched(watch: Stopwatch) -> ExitStack:
    """Return a context in which verification is timed by a stopwatch."""

    class Watched(ContentHash):
        update = watch.timed(ContentHash.update)

    return _instead(Watched, watch.timed(crc32c), watch.timed(incremental._same_content))


def _instead(content: type, checksum: Callable[..., int], same_content: Callable[..., Any]) -> ExitStack:
    """Replace all functions that verify in a checkpoint of this pipeline, until the stack is closed."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(streams, "ContentHash", content))
        for module in (reader, proof):
            stack.enter_context(patch.object(module, "crc32c", checksum))
        stack.enter_context(patch.object(incremental, "_same_content", same_content))
        return stack.pop_all()


class Checkpoints:
    """A pipeline with consecutive checkpoints: a first one of :data:`KEYS` keys, then one per turn."""

    def __init__(
        self, root: Path, setting: tuple[str, str], scale: float, verification: Callable[[], ExitStack]
    ) -> None:
        root.mkdir(parents=True)
        backend, strategy = setting
        self._verification = verification
        self._name = "safety"
        (root / "safety.yaml").write_text(PIPELINE.format(name=self._name, backend=backend, strategy=strategy))
        state, work = root / "state", root / "work"
        for directory in (state, work):
            directory.mkdir()
        self._deployment = Deployment(f"sqlite:///{root}/c.db", str(state), str(root), str(root), str(root), str(work))
        self._keys, self._events = int(KEYS * scale), int(EVENTS * scale)
        self._days = 0
        self._take(np.arange(self._keys))

    def turn(self, number: int) -> None:
        self._take(np.random.default_rng(number).integers(0, self._keys, self._events))

    def _take(self, keys: "np.ndarray[Any, Any]") -> None:
        with self._verification():
            self._checkpoint(pa.table({"key": keys, "amount": keys * 31}))

    def _checkpoint(self, events: pa.Table) -> None:
        self._days += 1
        pipeline = self._deployment.pipeline(self._name)
        number = begin(self._deployment, pipeline, DataInterval(self._days, self._days + 1), "bench").checkpoint_id
        plan = plan_snapshot(self._deployment, pipeline, number)
        assert plan is not None
        report = snapshot_subtask(Work(self._deployment, pipeline, plan), 0, 0, events)
        publish(self._deployment, pipeline, plan, len(events), [report])
        register(self._deployment, pipeline, number)


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    return [
        row
        for setting in SETTINGS
        for unit in UNITS
        for row in _rows(root / f"{'-'.join(setting)}-{unit[:3]}", setting, unit, runs, scale)
    ]


def _rows(root: Path, setting: tuple[str, str], unit: Unit, runs: int, scale: float) -> Iterable[Ratio]:
    watch, hashing = Stopwatch(unit), []
    verified = Checkpoints(root / "verified", setting, scale, lambda: watched(watch))
    without = Checkpoints(root / "sizes", setting, scale, unverified)

    def reset(_: int) -> None:
        watch.spent = 0.0

    contenders = {
        VERIFIED: Contender(verified.turn, before=reset, after=lambda _: hashing.append(watch.spent)),
        UNVERIFIED: Contender(without.turn),
    }
    figures = take_turns(contenders, runs, WARMUPS, unit)
    what = f"checkpoint of {int(KEYS * scale):,} keys, {' '.join(setting)}"
    turns = figures[VERIFIED]
    rest = tuple(turn - spent for turn, spent in zip(turns, hashing[WARMUPS:], strict=True))
    ratio = Ratio("G11", what, "the same without its calls that verify", "≤ 1.03", unit, turns, rest)
    record("G11", f"{what}, {unit}", 100 * (ratio.ratio - 1), unit="%")
    return ratio, Ratio("G11", what, UNVERIFIED, "none", unit, turns, figures[UNVERIFIED])
