"""Which snapshot strategy a subtask runs: by what the checkpoint asks for and what the backend is."""

from typing import Any

from statelib.backends.changelog import ChangelogKeyedStateBackend
from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator import OperatorStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.snapshot import SnapshotPlan
from statelib.model.choices import Strategy
from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.ids import AttemptId
from statelib.restore.plan import RestoreSource
from statelib.snapshots.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.changelog import ChangelogSnapshotStrategy, MaterializationLimits
from statelib.snapshots.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.operator import OperatorStateSnapshotStrategy
from statelib.snapshots.previous import PreviousSnapshot
from statelib.snapshots.rocksdb_full import RocksDBFullSnapshotStrategy
from statelib.snapshots.rocksdb_incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.stored import StoredRocksDBSnapshotStrategy
from statelib.snapshots.strategy import SnapshotStrategy
from statelib.snapshots.subtask import SubtaskSnapshotStrategy
from statelib.storage.local.store import LocalSnapshotDirectories
from statelib.storage.views import CheckpointedStateScope

INLINE_OPERATOR_BYTES = 1024
"""Operator state of this size always lives in ``_metadata``; every checkpoint has some, its source position."""


def logging_backend(
    pipeline: Pipeline, plan: SnapshotPlan, subtask: int, backend: KeyedStateBackend
) -> KeyedStateBackend:
    """With the changelog strategy the backend with a log, which is not kept where no snapshot can be continued
    with it."""
    if plan.record.strategy != Strategy.CHANGELOG:
        return backend
    continued = plan.previous[subtask].changelog is not None
    return ChangelogKeyedStateBackend(backend, pipeline.checkpoint.materialize_after_bytes if continued else 0)


def strategy_of(
    pipeline: Pipeline,
    plan: SnapshotPlan,
    subtask: int,
    backend: KeyedStateBackend,
    operator: OperatorStateBackend,
    *,
    uid: AttemptId,
    local: LocalSnapshotDirectories | None,
) -> SnapshotStrategy[Any]:
    """For all state of the subtask. ``backend``: as :func:`logging_backend` gave it; ``uid``: the attempt's."""
    previous = plan.previous[subtask]
    keyed = _keyed(pipeline, plan.record.strategy, backend, uid=uid, previous=previous, local=local)
    return SubtaskSnapshotStrategy(keyed, OperatorStateSnapshotStrategy(operator, uid, INLINE_OPERATOR_BYTES))


def copying_strategy(
    plan: SnapshotPlan, subtask: int, source: RestoreSource, operator: OperatorStateBackend, uid: AttemptId
) -> SnapshotStrategy[Any]:
    """For all state of a subtask whose keyed state is written once more as ``source`` has it: a native snapshot of
    RocksDB."""
    assert isinstance(source.handle, IncrementalRemoteKeyedStateHandle)
    keyed = StoredRocksDBSnapshotStrategy(source.handle, source.reader, plan.previous[subtask].stored, uid)
    return SubtaskSnapshotStrategy(keyed, OperatorStateSnapshotStrategy(operator, uid, INLINE_OPERATOR_BYTES))


def _keyed(
    pipeline: Pipeline,
    name: str,
    backend: KeyedStateBackend,
    *,
    uid: AttemptId,
    previous: PreviousSnapshot,
    local: LocalSnapshotDirectories | None,
) -> SnapshotStrategy[Any]:
    if isinstance(backend, ChangelogKeyedStateBackend):
        checkpoint = pipeline.checkpoint
        limits = MaterializationLimits(checkpoint.materialize_after_bytes, checkpoint.materialize_after_checkpoints)
        materializer = _materializer(backend.inner, uid, previous, local)
        return ChangelogSnapshotStrategy(backend, uid, materializer, limits, previous.changelog, local=local)
    if isinstance(backend, RocksDBKeyedStateBackend):
        if name == Strategy.FULL:
            return RocksDBFullSnapshotStrategy(backend, uid, local, previous.stored)
        if name == Strategy.INCREMENTAL:
            return RocksDBIncrementalSnapshotStrategy(backend, uid, previous, local)
    if name == Strategy.FULL and isinstance(backend, HeapKeyedStateBackend):
        return HeapNativeSnapshotStrategy(backend, uid, local=local)
    return CanonicalSnapshotStrategy(backend, local=local)


def _materializer(
    backend: KeyedStateBackend, uid: AttemptId, previous: PreviousSnapshot, local: LocalSnapshotDirectories | None
) -> SnapshotStrategy[Any]:
    """Writes the whole state so that later checkpoints can refer to all of it."""
    shared = CheckpointedStateScope.SHARED
    if isinstance(backend, RocksDBKeyedStateBackend):
        return RocksDBIncrementalSnapshotStrategy(backend, uid, previous, local, private_scope=shared)
    return CanonicalSnapshotStrategy(backend, local=local, scope=shared)
