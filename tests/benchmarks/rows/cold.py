"""Row P21: a batch that touches 1 % of the keys, in a run whose host has no copy of the state: a blind run, against one
that fetches the state.

The storage is the S3 endpoint of the tests, on this machine; its own time does not count. A turn is the run of all
subtasks, without Spark and the gate. The mean is over one full cycle: the blind runs, and the one that merges their
deltas with the state. Bytes are those of the state that the restores of a cycle read, by the subtasks' own reports."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import mean
from unittest.mock import patch

import pyarrow.parquet as pq

from statelib.savepoints.opened import Checkpoint
from tests.benchmarks.checks import Totals, expected, of_statelib, verdict
from tests.benchmarks.events import batch_directory, new_deployment, new_pipeline, write_batches
from tests.benchmarks.in_process import Subtasks
from tests.benchmarks.measure import Contender, Ratio, take_turns
from tests.benchmarks.rows.warm_restore import INTERPRETER
from tests.support.s3_endpoint import s3_endpoint

ROWS = ("P21",)
KEYS = 4_000_000
TOUCHED = 0.01
CYCLE = 20
"""The number of blind runs in a row, after which one merges their deltas: the default of the pipeline file."""
SETTINGS = {
    "blind heap": ("heap", "changelog", "blind: true, materialize_after_bytes: 1073741824"),
    "blind rocksdb": ("rocksdb", "changelog", "blind: true, materialize_after_bytes: 1073741824"),
    "rocksdb": ("rocksdb", "incremental", ""),
    "heap": ("heap", "changelog", "materialize_after_bytes: 1073741824"),
}


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    if not INTERPRETER.exists():
        return [
            Ratio(
                "P21",
                "cold 1 % batch from S3, blind",
                "fetching the state",
                "≤ 0.4",
                "cpu s",
                (),
                (),
                note="no .work/endpoint: make setup",
            )
        ]
    keys = max(int(KEYS * scale), 5_000)
    events = max(int(keys * TOUCHED), 10)
    write_batches(root, 1, keys)
    write_batches(root, CYCLE + 2, events, keys=keys, touched=TOUCHED, first=1)
    with s3_endpoint(INTERPRETER) as endpoint, patch.dict(os.environ, endpoint.environment):
        endpoint.make_bucket("cold")
        sides = {name: Cold(root, name) for name in SETTINGS}
        cpu = take_turns({name: side.contender() for name, side in sides.items()}, CYCLE + 1, 1, without=[endpoint.pid])
        totals = {name: side.totals() for name, side in sides.items()}
    right = expected([batch_directory(root, number) for number in range(CYCLE + 2)])
    note = verdict(totals, right) or f"{events:,} events onto {right[0]:,} keys"
    rows: list[Ratio] = []
    for backend in ("heap", "rocksdb"):
        what, against = f"cold 1 % batch from S3, blind, {backend}", f"{backend}, fetching the state"
        ours, theirs = cpu[f"blind {backend}"], cpu[backend]
        rows += [
            Ratio("P21", what, against, "≤ 0.4", "cpu s", ours, theirs, note=note),
            Ratio("P21", f"{what}, mean of a cycle", against, "≤ 0.4", "cpu s", (mean(ours),), (mean(theirs),),
                  note=f"{CYCLE} blind runs and one that merges"),
        ]  # fmt: skip
    read = tuple(bytes_read / 1e6 for bytes_read in sides["blind heap"].bytes_read[1:])
    state = max(sides["heap"].bytes_read) / 1e6
    return [
        *rows,
        Ratio("P21", "state that a blind run reads", "the state", "≤ 0.01", "MB", read, (state,) * len(read)),
        Ratio("P21", "the same, mean of a cycle", "the state", "-", "MB", (mean(read),), (state,),
              note="the run that merges reads the state and the deltas"),
    ]  # fmt: skip


class Cold:
    """A pipeline whose storage is a bucket, on a host that keeps nothing."""

    def __init__(self, root: Path, name: str) -> None:
        backend, strategy, settings = SETTINGS[name]
        self._root = root
        own = root / name
        own.mkdir()
        deployment = replace(new_deployment(own), storage_root=f"s3://cold/{name}", data=str(root / "data"))
        self._subtasks = Subtasks(deployment, new_pipeline(own, backend, strategy, settings=settings))
        self.bytes_read: list[int] = []
        self._opened: Checkpoint

    def contender(self) -> Contender:
        return Contender(lambda _: self._subtasks.apply(), self._before, self._after)

    def _before(self, number: int) -> None:
        self._subtasks.prepare(number, pq.read_table(batch_directory(self._root, number)))

    def _after(self, _: int) -> None:
        self._opened = self._subtasks.finish()
        restores = [report.restored for report in self._subtasks.reports]
        self.bytes_read.append(sum(restore.size_bytes for restore in restores if restore))

    def totals(self) -> Totals:
        """Return the totals of the state after the last turn."""
        return of_statelib(self._opened.to_arrow("activity", self._subtasks.deployment.work_directory))
