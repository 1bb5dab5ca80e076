"""Whole checkpoints including their ``_metadata``, with any content, backend, strategy and parallelism."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.formats.manifest.trailer import append_manifest
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.checkpoint import (
    CheckpointManifest,
    CheckpointMetadata,
    EventCounts,
    OperatorState,
    OperatorSubtaskState,
    SnapshotKind,
    SourcePosition,
    SubtaskReport,
)
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.key_groups import KeyGroupRange, all_key_groups, subtask_ranges
from statelib.model.state import KeyedStateSchema, merge_statistics
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.changelog import ChangelogSnapshotStrategy, MaterializationLimits
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import SnapshotStrategy, take_snapshot
from statelib.snapshots.uploads.records import file_records
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from statelib.storage.ports.views import CheckpointedStateScope
from statelib.testing.stored_snapshots import UID

NAME = PipelineName("stored")
ID = CheckpointId(1)
BEFORE = CheckpointId(0)
LIMITS = MaterializationLimits(1 << 24, 4)
ATTEMPT = AttemptId("0" * 32)


@dataclass(frozen=True)
class Way:
    """The way in which a checkpoint is made.

    ``manifest``: whether ``_metadata`` has a manifest; without it, the checkpoint looks like one that Flink wrote.
    ``strategy``: with ``changelog``, which needs a manifest, the state is filled and materialized, then filled once
    more, so that the changelog holds the second filling. ``compressed``: whether canonical and heap streams are
    compressed."""

    backend: str = "heap"
    strategy: str = "canonical"
    parallelism: int = 1
    manifest: bool = True
    inline_threshold_bytes: int = 0
    compressed: bool = True


def store_checkpoint(
    root: Path, schema: KeyedStateSchema, way: Way, fill: Callable[[KeyedStateBackend], None]
) -> Checkpoint:
    """Store a checkpoint below ``root``, which must not exist yet, and open it. ``fill`` is called with the backend of
    each subtask and writes the content."""
    storage = FileSystemCheckpointStorage(str(root), NAME, way.inline_threshold_bytes)
    reference = storage.initialize_location(ID)
    reports = []
    for subtask, key_groups in enumerate(subtask_ranges(way.parallelism, schema.max_parallelism)):
        backend = _backend(way, schema, key_groups, f"{root}/live-{subtask}")
        fill(backend)
        strategy = _strategy(way, backend)
        streams = storage.resolve_checkpoint_storage_location(ID, reference, ATTEMPT, subtask)
        if isinstance(strategy, ChangelogSnapshotStrategy):
            take_snapshot(strategy, BEFORE, streams, CloseableRegistry())
            strategy.notify_checkpoint_complete(BEFORE)
            fill(backend)
        result = take_snapshot(strategy, ID, streams, CloseableRegistry())
        files = file_records((*result.streams, *result.reused), subtask, key_groups)
        no_events = EventCounts(0, 0, 0)
        statistics = backend.statistics()
        reports.append(SubtaskReport(subtask, key_groups, result.keyed, files, statistics, no_events, "", 0, 0))
        strategy.close()
        backend.close()
    metadata = encode_metadata(_metadata(schema, way, reports))
    data = append_manifest(metadata, _manifest(schema, way, reports)) if way.manifest else metadata
    storage.publish_metadata(reference, data)
    return open_checkpoint(reference.directory, storage_root=str(root))


def _backend(way: Way, schema: KeyedStateSchema, key_groups: KeyGroupRange, directory: str) -> KeyedStateBackend:
    backend: KeyedStateBackend
    if way.backend == "heap":
        backend = HeapKeyedStateBackend(schema, key_groups)
    else:
        backend = RocksDBKeyedStateBackend(schema, key_groups, directory, UID)
    return ChangelogKeyedStateBackend(backend, LIMITS.size_bytes) if way.strategy == "changelog" else backend


def _strategy(way: Way, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
    if isinstance(backend, ChangelogKeyedStateBackend):
        return ChangelogSnapshotStrategy(backend, UID, _materializer(backend.inner), LIMITS)
    if way.strategy == "full" and isinstance(backend, RocksDBKeyedStateBackend):
        return RocksDBFullSnapshotStrategy(backend, UID)
    if way.strategy == "full" and isinstance(backend, HeapKeyedStateBackend):
        return HeapNativeSnapshotStrategy(backend, UID, way.compressed)
    return CanonicalSnapshotStrategy(backend, way.compressed)


def _materializer(backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
    scope = CheckpointedStateScope.SHARED
    if isinstance(backend, RocksDBKeyedStateBackend):
        return RocksDBIncrementalSnapshotStrategy(backend, UID, private_scope=scope)
    return CanonicalSnapshotStrategy(backend, scope=scope)


def _metadata(schema: KeyedStateSchema, way: Way, reports: list[SubtaskReport]) -> CheckpointMetadata:
    subtasks = tuple((r.subtask, OperatorSubtaskState(r.keyed)) for r in reports)
    operator = OperatorState(operator_id(NAME), way.parallelism, schema.max_parallelism, subtasks, uid=NAME)
    return CheckpointMetadata(ID, (operator,))


def _manifest(schema: KeyedStateSchema, way: Way, reports: list[SubtaskReport]) -> CheckpointManifest:
    key_groups = all_key_groups(schema.max_parallelism)
    return CheckpointManifest(
        pipeline=NAME,
        checkpoint_id=ID,
        kind=SnapshotKind.CHECKPOINT,
        strategy=way.strategy,
        epoch=Epoch(1),
        attempt=ATTEMPT,
        generation=0,
        base=None,
        created_at_ms=0,
        position=SourcePosition(None, 0),
        events=EventCounts(0, 0, 0),
        schema=schema,
        files=tuple(f for r in reports for f in r.files),
        statistics=tuple(
            merge_statistics(key_groups, [r.statistics[i] for r in reports]) for i in range(len(schema.states))
        ),
    )
