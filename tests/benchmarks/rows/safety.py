"""Rows G11: what safety costs, checkpoints with verification beside the same ones without any.

A turn is a whole checkpoint of one subtask, without Spark: begin, restore from the one before, apply the events,
snapshot, publish, register. Verified are CRC-32C and XXH3 of every byte that is written, of every local file that is
referred to again instead, and CRC-32C of every byte that is restored. Without: sizes only. Counts and digests of the
entries are taken in both; the gate, which reads everything back, is a task of its own and in neither.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from statelib.flows.checkpoint import begin, register
from statelib.flows.snapshot import plan_snapshot, publish
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.restore import proof
from statelib.snapshots import rocksdb_incremental
from statelib.spark.worker import Work, snapshot_subtask
from statelib.storage import reader, streams
from tests.benchmarks.measure import Contender, Ratio, Unit, take_turns
from tests.figures import record

ROWS = ("G11",)
WARMUPS = 2
KEYS, EVENTS = 1_000_000, 200_000
VERIFIED, UNVERIFIED = "verified", "sizes only"
PIPELINE = """\
name: {name}
source: {{path: "{{data}}/x", columns: {{key: long, amount: long}}}}
key: [key]
states:
  total: {{kind: value, value: {{agg: sum, of: amount}}}}
  most: {{kind: reducing, value: {{agg: max, of: amount}}}}
backend: {backend}
checkpoint: {{strategy: {strategy}}}
"""
SETTINGS = (("heap", "canonical"), ("rocksdb", "full"), ("rocksdb", "incremental"))
UNITS: tuple[Unit, ...] = ("cpu s", "wall s")


class NoHash:
    """In the place of :class:`~statelib.wire.checksum.ContentHash`."""

    crc32c = xxh3 = 0

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Looks at nothing."""


@contextmanager
def unverified() -> Iterator[None]:
    """What is written so cannot be read with verification, and the other way round."""

    def same(_uploads: object, _path: str, known: Any) -> Any:
        return known

    def none(_data: object, _value: int = 0) -> int:
        return 0

    with ExitStack() as stack:
        stack.enter_context(patch.object(streams, "ContentHash", NoHash))
        for module in (reader, proof):
            stack.enter_context(patch.object(module, "crc32c", none))
        stack.enter_context(patch.object(rocksdb_incremental, "_same_content", same))
        yield


class Checkpoints:
    """A pipeline whose checkpoints follow each other: a first one of :data:`KEYS` keys, then one a turn."""

    def __init__(self, root: Path, backend: str, strategy: str, scale: float, verification: str) -> None:
        root.mkdir(parents=True)
        self._unverified = verification == UNVERIFIED
        self._name = "safety"
        (root / "safety.yaml").write_text(PIPELINE.format(name=self._name, backend=backend, strategy=strategy))
        state, work = root / "state", root / "work"
        for directory in (state, work):
            directory.mkdir()
        self._here = Deployment(f"sqlite:///{root}/c.db", str(state), str(root), str(root), str(root), str(work))
        self._keys, self._events = int(KEYS * scale), int(EVENTS * scale)
        self._days = 0
        self._take(np.arange(self._keys))

    def turn(self, number: int) -> None:
        self._take(np.random.default_rng(number).integers(0, self._keys, self._events))

    def _take(self, keys: "np.ndarray[Any, Any]") -> None:
        with unverified() if self._unverified else ExitStack():
            self._checkpoint(pa.table({"key": keys, "amount": keys * 31}))

    def _checkpoint(self, events: pa.Table) -> None:
        self._days += 1
        pipeline = self._here.pipeline(self._name)
        number = begin(self._here, pipeline, DataInterval(self._days, self._days + 1), "bench").checkpoint_id
        plan = plan_snapshot(self._here, pipeline, number)
        assert plan is not None
        report = snapshot_subtask(Work(self._here, pipeline, plan), 0, 0, events)
        publish(self._here, pipeline, plan, len(events), [report])
        register(self._here, pipeline, number)


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    return [
        _row(root / f"{'-'.join(setting)}-{unit[:3]}", setting, unit, runs, scale)
        for setting in SETTINGS
        for unit in UNITS
    ]


def _row(root: Path, setting: tuple[str, str], unit: Unit, runs: int, scale: float) -> Ratio:
    backend, strategy = setting

    def turn(verification: str) -> Callable[[int], None]:
        return Checkpoints(root / verification[:4], backend, strategy, scale, verification).turn

    contenders = {name: Contender(turn(name)) for name in (VERIFIED, UNVERIFIED)}
    figures = take_turns(contenders, runs, WARMUPS, unit)
    what = f"checkpoint of {int(KEYS * scale):,} keys, {backend} {strategy}"
    ratio = Ratio("G11", what, UNVERIFIED, "≤ 1.03", unit, figures[VERIFIED], figures[UNVERIFIED])
    if unit == "cpu s":
        record("G11", what, max(0.0, 100 * (ratio.ratio - 1)), unit="%")
    return ratio
