"""The choice of the snapshot strategy of a subtask, by the strategy of the checkpoint and the backend."""

import sys
from typing import Any

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.state import OperatorStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend, DeltaKeyedStateBackend
from statelib.backends.wrappers.partial import PartialKeyedStateBackend
from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan
from statelib.model.choices import Strategy
from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.ids import AttemptId
from statelib.restore.plan import RestoreSource
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.changelog import NO_LIMITS, ChangelogSnapshotStrategy, MaterializationLimits
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategies.operator import OperatorStateSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategies.stored import StoredRocksDBSnapshotStrategy
from statelib.snapshots.strategy import SnapshotStrategy
from statelib.snapshots.subtask import SubtaskSnapshotStrategy
from statelib.snapshots.uploads.previous import PreviousSnapshot
from statelib.storage.local.store import LocalSnapshotDirectories
from statelib.storage.ports.views import CheckpointedStateScope

INLINE_OPERATOR_BYTES = 1024
"""The bytes of operator state up to which it is stored inside ``_metadata``. Every checkpoint has operator state: its
source position."""


def logging_backend(
    pipeline: Pipeline, plan: SnapshotPlan, subtask: int, backend: KeyedStateBackend
) -> KeyedStateBackend:
    """Return the backend; for the changelog strategy, wrapped in a backend with a log.

    The log has a limit of 0 bytes if no earlier changelog can be continued. It has none if only a part of the state is
    there. If the subtask has not read the state, the log is a delta."""
    if plan.is_blind(subtask):
        return DeltaKeyedStateBackend(backend)
    if plan.record.strategy != Strategy.CHANGELOG:
        return backend
    if isinstance(backend, PartialKeyedStateBackend):
        return ChangelogKeyedStateBackend(backend, sys.maxsize)
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
    """Return the strategy for all state of the subtask. ``backend``: the result of :func:`logging_backend`. ``uid``:
    the id of the attempt. ``local``: the directories for local copies; None if no copies are made."""
    previous = plan.previous[subtask]
    keyed = _keyed(pipeline, plan.record.strategy, backend, uid=uid, previous=previous, local=local)
    return SubtaskSnapshotStrategy(keyed, OperatorStateSnapshotStrategy(operator, uid, INLINE_OPERATOR_BYTES))


def copying_strategy(
    plan: SnapshotPlan, subtask: int, source: RestoreSource, operator: OperatorStateBackend, uid: AttemptId
) -> SnapshotStrategy[Any]:
    """Return the strategy for a subtask whose keyed state is a copy of the files of ``source``, which is a native
    snapshot of RocksDB. ``uid``: the id of the attempt."""
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
        if isinstance(backend, DeltaKeyedStateBackend) or isinstance(backend.inner, PartialKeyedStateBackend):
            limits = NO_LIMITS  # there is no whole state to materialise
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
    """Return the strategy that writes the whole state of a changelog backend to shared files, to which later
    checkpoints can refer."""
    shared = CheckpointedStateScope.SHARED
    if isinstance(backend, RocksDBKeyedStateBackend):
        return RocksDBIncrementalSnapshotStrategy(backend, uid, previous, local, private_scope=shared)
    return CanonicalSnapshotStrategy(backend, local=local, scope=shared)
