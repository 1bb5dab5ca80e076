"""What runs in one Spark task: restore the subtask's key groups, apply its events, snapshot, acknowledge."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.definition.columns import key_array, keyed_events
from statelib.definition.pipeline import Pipeline
from statelib.flows.snapshot import INCREMENTAL, RestoreLayout, SnapshotPlan
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import EventCounts, FileRecord, SubtaskReport
from statelib.model.handles import ByteStreamStateHandle
from statelib.model.ids import AttemptId
from statelib.restore.keyed import restore_heap, restore_rocksdb
from statelib.serializers.keys import key_groups
from statelib.snapshots.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.previous import PreviousSnapshot
from statelib.snapshots.rocksdb_full import RocksDBFullSnapshotStrategy
from statelib.snapshots.rocksdb_incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import SnapshotResult, SnapshotStrategy
from statelib.storage.closeables import CloseableRegistry


@dataclass(frozen=True)
class Work:
    """What every task of a snapshot is given; picklable."""

    deployment: Deployment
    pipeline: Pipeline
    plan: SnapshotPlan


def snapshot_subtask(work: Work, subtask: int, task: int, events: pa.Table) -> SubtaskReport:
    """One subtask's whole part of a checkpoint. ``task`` tells apart two tries at the same subtask."""
    plan = work.plan
    attempt = task_attempt(plan.attempt, task)
    with live_backend(work.pipeline, work.deployment, plan.layout, subtask, attempt) as backend:
        keyed, null_keys = keyed_events(work.pipeline, events)
        apply_events(work.pipeline, backend, keyed)
        result, sync_ms, async_ms = _snapshot(work, backend, subtask, attempt)
        return SubtaskReport(
            subtask=subtask,
            key_group_range=plan.layout.ranges[subtask],
            keyed=result.keyed,
            files=_files(result, backend, subtask),
            statistics=backend.statistics(),
            events=EventCounts(len(events), len(keyed), null_keys),
            restored_from="remote" if plan.layout.sources[subtask] else "empty",
            sync_ms=sync_ms,
            async_ms=async_ms,
            uploaded_bytes=sum(written.size_bytes for written in result.streams),
        )


def task_attempt(attempt: AttemptId, task: int) -> AttemptId:
    """The attempt's id made unique for one Spark task: the last 8 digits are the task's own."""
    return AttemptId(f"{attempt[:24]}{task & 0xFFFFFFFF:08x}")


@contextmanager
def live_backend(
    pipeline: Pipeline, deployment: Deployment, layout: RestoreLayout, subtask: int, attempt: AttemptId
) -> Iterator[KeyedStateBackend]:
    """The subtask's state, restored into a scratch directory that is gone afterwards."""
    directory = tempfile.mkdtemp(prefix=f"{pipeline.name}-{attempt}-", dir=deployment.work_directory)
    try:
        backend = _restore(pipeline, layout, subtask, f"{directory}/db", attempt)
        try:
            yield backend
        finally:
            backend.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _restore(
    pipeline: Pipeline, layout: RestoreLayout, subtask: int, directory: str, uid: AttemptId
) -> KeyedStateBackend:
    sources = layout.sources[subtask]
    if pipeline.backend == "heap":
        return restore_heap(layout.schema, layout.ranges[subtask], sources)
    return restore_rocksdb(layout.schema, layout.ranges[subtask], sources, directory, uid)


def apply_events(pipeline: Pipeline, backend: KeyedStateBackend, events: pa.Table) -> None:
    """Let every state function of the pipeline see the events of this subtask."""
    if not len(events):
        return
    keys = key_array(pipeline, events)
    groups = key_groups(backend.schema, keys)
    for function in pipeline.functions():
        function.apply(backend, events, keys, groups)


def _snapshot(
    work: Work, backend: KeyedStateBackend, subtask: int, attempt: AttemptId
) -> tuple[SnapshotResult, int, int]:
    """The result, and the milliseconds of the synchronous and of the asynchronous part."""
    plan = work.plan
    storage = work.deployment.storage(work.pipeline)
    streams = storage.resolve_checkpoint_storage_location(plan.record.checkpoint_id, plan.reference, attempt, subtask)
    strategy = _strategy(plan.record.strategy, backend, attempt, plan.previous[subtask])
    try:
        started = time.monotonic_ns()
        resources = strategy.prepare(plan.record.checkpoint_id)
        frozen = time.monotonic_ns()
        try:
            result = strategy.run(resources, plan.record.checkpoint_id, streams, CloseableRegistry())
        finally:
            resources.release()
    finally:
        strategy.close()
    return result, (frozen - started) // 1_000_000, (time.monotonic_ns() - frozen) // 1_000_000


def _strategy(
    name: str, backend: KeyedStateBackend, uid: AttemptId, previous: PreviousSnapshot
) -> SnapshotStrategy[Any]:
    if isinstance(backend, RocksDBKeyedStateBackend):
        if name == "full":
            return RocksDBFullSnapshotStrategy(backend, uid)
        if name == INCREMENTAL:
            return RocksDBIncrementalSnapshotStrategy(backend, uid, previous)
    if name == "full" and isinstance(backend, HeapKeyedStateBackend):
        return HeapNativeSnapshotStrategy(backend, uid)
    return CanonicalSnapshotStrategy(backend)


def _files(result: SnapshotResult, backend: KeyedStateBackend, subtask: int) -> tuple[FileRecord, ...]:
    return tuple(
        FileRecord(w.handle.path, w.size_bytes, w.crc32c, subtask, backend.key_group_range)
        for w in (*result.streams, *result.reused)
        if not isinstance(w.handle, ByteStreamStateHandle)
    )
