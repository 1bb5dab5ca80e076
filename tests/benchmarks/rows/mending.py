"""Row P23: day 3 of 30 is corrected in the state of 2 M keys, against a replay of the 27 days after it; and a run that
keeps its delta, against one that keeps none.

Whole runs, from begin to register with the gate, RocksDB with incremental checkpoints, without Spark. Both sides
apply the same corrected day; before a replay is measured, the checkpoint of day 2 is restored and day 3 applied."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.model.ids import CheckpointId
from statelib.model.record import ClaimMode
from statelib.savepoints.opened import Checkpoint
from tests.benchmarks.checks import Totals, expected, of_statelib, verdict
from tests.benchmarks.events import batch_directory, new_deployment, new_pipeline, write_batches
from tests.benchmarks.in_process import Subtasks
from tests.benchmarks.measure import Contender, Ratio, take_turns

ROWS = ("P23",)
KEYS = 2_000_000
TOUCHED = 0.01
DAYS = 30
MENDED = 3
RETAIN = "retain: {count: 100}"


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    keys = max(int(KEYS * scale), 5_000)
    events = max(int(keys * TOUCHED), 10)
    write_batches(root, 1, keys)
    further = DAYS + 1 + runs  # the corrections of day 3 come before the days after day 30
    write_batches(root, further + runs, events, keys=keys, first=1)
    mended, replayed = Kept(root, "mended", f"{RETAIN}, mendable: 60d"), Kept(root, "replayed", RETAIN)
    for side in (mended, replayed):
        for number in range(DAYS + 1):
            side.whole_run(number, number)
    correction = take_turns({"mend": mended.mending(), "replay": replayed.replaying()}, runs, 0)
    days = [*range(MENDED), DAYS + runs, *range(MENDED + 1, DAYS + 1)]
    right = expected([batch_directory(root, number) for number in days])
    note = verdict({side.name: side.totals() for side in (mended, replayed)}, right)
    plain = take_turns({side.name: side.running(DAYS + 1, further) for side in (mended, replayed)}, runs, 0)
    return [
        Ratio("P23", f"mend day {MENDED} of {DAYS}", f"replaying {DAYS - MENDED} days", "≤ 0.11", "cpu s",
              correction["mend"], correction["replay"], note=note or f"{events:,} events a day, {right[0]:,} keys"),
        Ratio("P23", "a run that keeps its delta", "a run that keeps none", "-", "cpu s",
              plain["mended"], plain["replayed"]),
    ]  # fmt: skip


class Kept:
    """A pipeline whose checkpoints all stay."""

    def __init__(self, root: Path, name: str, settings: str) -> None:
        self.name, self._root = name, root
        own = root / name
        own.mkdir()
        self._subtasks = Subtasks(new_deployment(own), new_pipeline(own, "rocksdb", "incremental", settings=settings))
        self._checkpoints: dict[int, CheckpointId] = {}
        self._opened: Checkpoint

    def whole_run(self, number: int, batch: int) -> None:
        """Apply a batch as the events of a day."""
        self._subtasks.prepare(number, self._events(batch))
        self._finish(number)

    def running(self, day: int, batch: int) -> Contender:
        """Return the contender whose turn is the run of one day, from ``day`` on."""
        return Contender(lambda turn: self.whole_run(day + turn, batch + turn))

    def mending(self) -> Contender:
        """Return the contender whose turn corrects the day."""

        def turn(number: int) -> None:
            self._subtasks.prepare_mend(MENDED, self._events(DAYS + 1 + number))
            self._finish(MENDED)

        return Contender(turn)

    def replaying(self) -> Contender:
        """Return the contender whose turn runs the days after the corrected one again."""

        def before(number: int) -> None:
            deployment, pipeline = self._subtasks.deployment, self._subtasks.pipeline
            first = str(self._checkpoints[MENDED - 1])
            apply_restore(
                deployment, pipeline, plan_restore(deployment, pipeline, first, None, ClaimMode.NO_CLAIM), "bench"
            )
            self.whole_run(MENDED, DAYS + 1 + number)

        def turn(_: int) -> None:
            for day in range(MENDED + 1, DAYS + 1):
                self.whole_run(day, day)

        return Contender(turn, before)

    def totals(self) -> Totals:
        """Return the totals of the state of the newest checkpoint."""
        return of_statelib(self._opened.to_arrow("activity", self._subtasks.deployment.work_directory))

    def _events(self, batch: int) -> pa.Table:
        return pq.read_table(batch_directory(self._root, batch))

    def _finish(self, day: int) -> None:
        self._subtasks.apply()
        self._opened = self._subtasks.finish(judged=True)
        assert self._opened.manifest is not None
        self._checkpoints[day] = self._opened.manifest.checkpoint_id
