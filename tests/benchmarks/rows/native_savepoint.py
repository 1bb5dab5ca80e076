"""Row ``copies``: a native savepoint of an incremental checkpoint that the storage copies, against the same savepoint
restored, read and written again.

On a file system and on the S3 endpoint of the tests, on this machine: a network would make what goes through the
worker slower. Wall seconds of the subtasks alone, one after the other; the gate, which reads either savepoint whole,
is outside. Bytes moved are those that the subtasks read from the storage and write to it."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from statelib.definition.columns import event_schema
from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan, plan_snapshot
from statelib.flows.checkpoint.steps import register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SubtaskReport
from statelib.savepoints.opened import open_checkpoint
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from tests.benchmarks.events import new_deployment, new_pipeline
from tests.benchmarks.in_process import Subtasks
from tests.benchmarks.measure import Contender, Ratio, take_turns
from tests.support.s3_endpoint import s3_endpoint

ROWS = ("copies",)
BYTES_OF_STATE = 300_000_000
TEXT_BYTES = 200
INTERVALS = 4
WARMUPS = 1
INTERPRETER = Path(__file__).resolve().parents[3] / ".work" / "endpoint" / "bin" / "python"
WHAT, AGAINST = "native savepoint of an incremental checkpoint, copied by", "restored and written again"


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    size_bytes = int(BYTES_OF_STATE * scale)
    (root / "files").mkdir()
    ratios = _ratios(root / "files", None, "the file system", size_bytes, runs)
    if not INTERPRETER.exists():
        what = f"{WHAT} S3"
        return [*ratios, Ratio("copies", what, AGAINST, "none", "wall s", (), (), note="no .work/endpoint: make setup")]
    with s3_endpoint(INTERPRETER) as endpoint, patch.dict(os.environ, endpoint.environment):
        endpoint.make_bucket("state")
        (root / "s3").mkdir()
        return [*ratios, *_ratios(root / "s3", "s3://state/root", "S3", size_bytes, runs)]


def _ratios(root: Path, storage: str | None, where: str, size_bytes: int, runs: int) -> list[Ratio]:
    deployment = new_deployment(root)
    deployment = deployment if storage is None else replace(deployment, storage_root=storage)
    pipeline = new_pipeline(root, "rocksdb", "incremental")
    _fill(deployment, pipeline, size_bytes)
    copied, restored = Savepoints(deployment, pipeline, copies=True), Savepoints(deployment, pipeline, copies=False)
    contenders = {
        name: Contender(of.take, before=of.prepare, after=of.remove)
        for name, of in (("copied", copied), ("restored", restored))
    }
    figures = take_turns(contenders, runs, WARMUPS, "wall s")
    note = f"{copied.size_bytes / 1e6:.0f} MB in {copied.files} files"
    if copied.entries != restored.entries:
        note = f"INVALID, entries differ: {copied.entries} and {restored.entries}"
    ours, theirs = (tuple(of.moved[-runs:]) for of in (copied, restored))
    return [
        Ratio(
            "copies", f"{WHAT} {where}", AGAINST, "none", "wall s", figures["copied"], figures["restored"], note=note
        ),
        Ratio(
            "copies", f"the same, bytes moved by the subtasks, {where}", AGAINST, "none", "MB", ours, theirs, note=note
        ),
    ]


def _fill(deployment: Deployment, pipeline: Pipeline, size_bytes: int) -> None:
    """Write as many keys as are needed for the size, with texts that do not compress."""
    subtasks = Subtasks(deployment, pipeline)
    count = size_bytes // TEXT_BYTES // INTERVALS
    random = np.random.default_rng(0)
    for number in range(INTERVALS):
        letters = random.integers(33, 127, count * TEXT_BYTES, np.uint8)
        offsets = np.arange(0, (count + 1) * TEXT_BYTES, TEXT_BYTES, dtype=np.int32)
        text = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))
        keys = np.arange(number * count, (number + 1) * count)
        subtasks.prepare(number, pa.table({"key": keys, "amount": keys / 4, "ts": keys, "text": text}))
        subtasks.apply()
        subtasks.finish()


class Savepoints:
    """Native savepoints of a pipeline. ``copies`` False: each subtask restores and writes all files instead of
    copying them."""

    def __init__(self, deployment: Deployment, pipeline: Pipeline, *, copies: bool) -> None:
        self._deployment, self._pipeline, self._copies = deployment, pipeline, copies
        self._plan: SnapshotPlan | None = None
        self._reports: list[SubtaskReport] = []
        self.moved: list[float] = []
        self.size_bytes = self.files = self.entries = 0

    def prepare(self, number: int) -> None:
        key = f"{self._copies}-{number}"
        begun = begin_savepoint(
            self._deployment, self._pipeline, format="native", target=None, note="", owner="bench", key=key
        )
        plan = plan_snapshot(self._deployment, self._pipeline, begun.checkpoint_id)
        assert plan is not None
        self._plan = plan
        if not self._copies:
            self._plan = replace(plan, previous=tuple(replace(each, stored={}) for each in plan.previous))

    def take(self, number: int) -> None:
        assert self._plan is not None
        work = Work(self._deployment.for_workers(), self._pipeline, self._plan)
        nothing = event_schema(self._pipeline).empty_table()
        subtasks = range(self._pipeline.parallelism)
        self._reports = [snapshot_subtask(work, subtask, 100 * number + subtask, nothing) for subtask in subtasks]

    def remove(self, _: int) -> None:
        """Assert that the savepoint is complete, and remove it with all its files."""
        assert self._plan is not None
        record = self._plan.record
        publish(self._deployment, self._pipeline, self._plan, 0, self._reports)
        register(self._deployment, self._pipeline, record.checkpoint_id)
        opened = open_checkpoint(record.directory, own=True, storage_root=self._deployment.storage_root)
        assert opened.manifest is not None
        files = opened.manifest.files
        self.files, self.size_bytes = len(files), sum(file.size_bytes for file in files)
        self.entries = sum(statistics.total_entries for statistics in opened.manifest.statistics)
        stored = {stored_file.stream.xxh3 for each in self._plan.previous for stored_file in each.stored.values()}
        read = sum(report.restored.size_bytes for report in self._reports if report.restored)
        written = sum(report.uploaded_bytes for report in self._reports)
        copied = sum(file.size_bytes for file in files if file.xxh3 in stored)
        self.moved.append((read + written - copied) / 1e6)
        remover = self._deployment.remover()
        for file in remover.list_files(record.directory):
            remover.remove_file(f"{record.directory}/{file.path}", [record.directory])
