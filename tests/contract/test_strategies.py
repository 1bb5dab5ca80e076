"""Every snapshot strategy keeps the contract."""

from pathlib import Path
from typing import Any

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.model.handles import (
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.snapshots.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.rocksdb_full import RocksDBFullSnapshotStrategy
from statelib.snapshots.rocksdb_incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import SnapshotStrategy
from statelib.storage.views import CheckpointedStateScope
from statelib.testing.strategy_suite import SnapshotStrategySuite

UID = "5a7b0000-0000-0000-0000-000000000000"


class _HeapBackend:
    def make_backend(
        self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path
    ) -> KeyedStateBackend:
        return HeapKeyedStateBackend(schema, key_group_range)


class _RocksDBBackend:
    def make_backend(
        self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path
    ) -> KeyedStateBackend:
        return RocksDBKeyedStateBackend(schema, key_group_range, str(directory), UID)


class TestCanonicalOfHeap(_HeapBackend, SnapshotStrategySuite):
    handle_type = KeyGroupsSavepointStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        return CanonicalSnapshotStrategy(backend)


class TestCanonicalOfHeapUncompressed(_HeapBackend, SnapshotStrategySuite):
    handle_type = KeyGroupsSavepointStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        return CanonicalSnapshotStrategy(backend, compressed=False)


class TestCanonicalOfRocksDB(_RocksDBBackend, SnapshotStrategySuite):
    handle_type = KeyGroupsSavepointStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        return CanonicalSnapshotStrategy(backend)


class TestFullOfRocksDB(_RocksDBBackend, SnapshotStrategySuite):
    handle_type = IncrementalRemoteKeyedStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, RocksDBKeyedStateBackend)
        return RocksDBFullSnapshotStrategy(backend, UID)


class TestNativeOfHeap(_HeapBackend, SnapshotStrategySuite):
    handle_type = KeyGroupsStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, HeapKeyedStateBackend)
        return HeapNativeSnapshotStrategy(backend, UID)


class TestNativeOfHeapUncompressed(_HeapBackend, SnapshotStrategySuite):
    handle_type = KeyGroupsStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, HeapKeyedStateBackend)
        return HeapNativeSnapshotStrategy(backend, UID, compressed=False)


class TestIncrementalOfRocksDB(_RocksDBBackend, SnapshotStrategySuite):
    handle_type = IncrementalRemoteKeyedStateHandle
    scopes = frozenset(CheckpointedStateScope)

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, RocksDBKeyedStateBackend)
        return RocksDBIncrementalSnapshotStrategy(backend, UID)
