"""A run of a pipeline in several subtasks with checkpoints and restores, for tests of time and rescaling.

Like ``local_run`` it needs no Spark, no Airflow and no catalog, but it uses real storage, strategies and restores.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.coordinator.state_assignment import assign
from statelib.definition.columns import key_array
from statelib.definition.pipeline import Pipeline
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import subtask_ranges
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.serializers.entries.keys import key_groups
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import SnapshotResult, take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.testing.checkpoint_chain import CheckpointChain
from statelib.testing.local_run import LocalRun

UID = "5a7b0000-0000-0000-0000-000000000000"


class SubtaskRun:
    """The subtasks of a pipeline, whose backend and parallelism may change at each checkpoint. ``backend`` and
    ``strategy`` have the values of a pipeline file. ``late``: late events per state, complete after :meth:`close`."""

    def __init__(self, pipeline: Pipeline, root: Path, backend: str = "heap", parallelism: int = 1) -> None:
        self.pipeline = pipeline
        self._root = root
        self._chain = CheckpointChain(root / "storage")
        self._number = 0
        self._watermark_ms = -(2**63)
        self.late = Counter[str]()
        self._subtasks = self._restored((), backend, parallelism)

    def apply(self, events: pa.Table, end_ms: int) -> None:
        """Apply the events of one interval. Each event is applied by the subtask that owns its key."""
        schema = self._subtasks[0].backend.schema
        groups = key_groups(schema, key_array(self.pipeline, events))
        for subtask in self._subtasks:
            owned = subtask.backend.key_group_range
            rows = np.flatnonzero((groups >= owned.start) & (groups <= owned.end))
            subtask.apply(events.take(pa.array(rows)), end_ms)
            self._watermark_ms = subtask.watermark_ms

    def checkpoint(self, strategy: str, backend: str, parallelism: int) -> None:
        """Take a checkpoint, close all backends, and restore the checkpoint into new ones."""
        self._number += 1
        sources = []
        for number, subtask in enumerate(self._subtasks):
            result = self._snapshot(subtask.backend, strategy, number)
            sources.append(self._chain.source(self._number, result, subtask.backend))
        self.close()
        self._subtasks = self._restored(sources, backend, parallelism)

    def state(self, name: str) -> dict[object, object]:
        """Return the content of a state in all subtasks, in the form of :meth:`LocalRun.state`."""
        values_by_key: dict[object, object] = {}
        for subtask in self._subtasks:
            subtask_values = subtask.state(name)
            assert not values_by_key.keys() & subtask_values.keys()
            values_by_key |= subtask_values
        return values_by_key

    def close(self) -> None:
        for subtask in self._subtasks:
            self.late.update(subtask.late)
            subtask.backend.close()

    def _snapshot(self, backend: KeyedStateBackend, strategy: str, subtask: int) -> SnapshotResult:
        checkpoint_id, registry = CheckpointId(self._number), CloseableRegistry()
        streams = self._chain.streams(self._number, subtask)
        if strategy == "canonical":
            return take_snapshot(CanonicalSnapshotStrategy(backend), checkpoint_id, streams, registry)
        if isinstance(backend, HeapKeyedStateBackend):
            return take_snapshot(HeapNativeSnapshotStrategy(backend, UID), checkpoint_id, streams, registry)
        assert isinstance(backend, RocksDBKeyedStateBackend)
        if strategy == "full":
            return take_snapshot(RocksDBFullSnapshotStrategy(backend, UID), checkpoint_id, streams, registry)
        return take_snapshot(RocksDBIncrementalSnapshotStrategy(backend, UID), checkpoint_id, streams, registry)

    def _restored(self, sources: Sequence[RestoreSource], backend: str, parallelism: int) -> list[LocalRun]:
        schema, ranges = self.pipeline.schema(), subtask_ranges(parallelism, self.pipeline.max_parallelism)
        handles = [(source.handle.key_group_range, source) for source in sources]
        assigned = assign(handles, parallelism, self.pipeline.max_parallelism) if handles else ((),) * parallelism
        runs = []
        for subtask, (owned, assigned_sources) in enumerate(zip(ranges, assigned, strict=True)):
            directory = str(self._root / f"live-{self._number}-{subtask}")
            live: KeyedStateBackend = (
                restore_heap(schema, owned, assigned_sources, directory)
                if backend == "heap"
                else restore_rocksdb(schema, owned, assigned_sources, directory, UID)
            )
            runs.append(LocalRun(self.pipeline, live, self._watermark_ms))
        return runs
