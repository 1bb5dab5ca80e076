"""Every snapshot strategy keeps the contract."""

from pathlib import Path
from typing import Any

import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.changelog import ChangelogSnapshotStrategy, MaterializationLimits
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import SnapshotStrategy, take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointedStateScope, FileMergingSettings
from statelib.testing.memory_storage import MemoryCheckpointStorage
from statelib.testing.suites.strategy import MEMORY, SnapshotStrategySuite
from tests.support.extent import TEST_ALL

UID = "5a7b0000-0000-0000-0000-000000000000"


SAMPLED = ("file", "memory", "s3") if TEST_ALL else ("file", "memory")
EVERYWHERE = ("file", "memory", "s3")


class _Suite(SnapshotStrategySuite):
    """The suite on every storage."""

    @pytest.fixture(params=SAMPLED)
    def storage_root(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        return root_of(request, tmp_path)


class _EverywhereSuite(SnapshotStrategySuite):
    """The suite on every storage, on S3 even if only a sample is run."""

    @pytest.fixture(params=EVERYWHERE)
    def storage_root(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        return root_of(request, tmp_path)


def root_of(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return f"s3://{request.getfixturevalue('bucket')}/root"
    return MEMORY if request.param == "memory" else str(tmp_path / "storage")


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


class TestCanonicalOfHeap(_HeapBackend, _EverywhereSuite):
    handle_type = KeyGroupsSavepointStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        return CanonicalSnapshotStrategy(backend)


class TestCanonicalOfHeapUncompressed(_HeapBackend, _Suite):
    handle_type = KeyGroupsSavepointStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        return CanonicalSnapshotStrategy(backend, compressed=False)


class TestCanonicalOfRocksDB(_RocksDBBackend, _Suite):
    handle_type = KeyGroupsSavepointStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        return CanonicalSnapshotStrategy(backend)


class TestFullOfRocksDB(_RocksDBBackend, _Suite):
    handle_type = IncrementalRemoteKeyedStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, RocksDBKeyedStateBackend)
        return RocksDBFullSnapshotStrategy(backend, UID)


class TestNativeOfHeap(_HeapBackend, _Suite):
    handle_type = KeyGroupsStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, HeapKeyedStateBackend)
        return HeapNativeSnapshotStrategy(backend, UID)


class TestNativeOfHeapUncompressed(_HeapBackend, _Suite):
    handle_type = KeyGroupsStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, HeapKeyedStateBackend)
        return HeapNativeSnapshotStrategy(backend, UID, compressed=False)


class TestIncrementalOfRocksDB(_RocksDBBackend, _EverywhereSuite):
    handle_type = IncrementalRemoteKeyedStateHandle
    scopes = frozenset(CheckpointedStateScope)

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, RocksDBKeyedStateBackend)
        return RocksDBIncrementalSnapshotStrategy(backend, UID)


class TestCanonicalOfHeapMerged(TestCanonicalOfHeap):
    merging = FileMergingSettings()


class TestNativeOfHeapMerged(TestNativeOfHeap):
    merging = FileMergingSettings()


class TestFullOfRocksDBMerged(TestFullOfRocksDB):
    merging = FileMergingSettings()


class TestIncrementalOfRocksDBMerged(TestIncrementalOfRocksDB):
    """The suite with small physical files, in which large streams have files of their own."""

    merging = FileMergingSettings(max_file_size_bytes=2000)


LIMITS = MaterializationLimits(1 << 20, 3)


class _Logging:
    """A backend with a log around those of another base class."""

    handle_type = ChangelogStateBackendHandleImpl
    scopes = frozenset({CheckpointedStateScope.SHARED})

    def make_backend(
        self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path
    ) -> KeyedStateBackend:
        inner = super().make_backend(schema, key_group_range, directory)
        return ChangelogKeyedStateBackend(inner, 1 << 20)

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, ChangelogKeyedStateBackend)
        materializer: SnapshotStrategy[Any]
        if isinstance(backend.inner, RocksDBKeyedStateBackend):
            scope = CheckpointedStateScope.SHARED
            materializer = RocksDBIncrementalSnapshotStrategy(backend.inner, UID, private_scope=scope)
        else:
            materializer = CanonicalSnapshotStrategy(backend.inner, scope=CheckpointedStateScope.SHARED)
        return ChangelogSnapshotStrategy(backend, UID, materializer, LIMITS)


class TestMaterialisationOfHeap(_Logging, _HeapBackend, _Suite):
    pass


class TestMaterialisationOfRocksDB(_Logging, _RocksDBBackend, _Suite):
    pass


class _OverEmptyState(_Logging):
    """The suite on a state that was materialised before it had an entry: everything that the suite writes is in the
    log."""

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        strategy = super().make_strategy(backend)
        assert isinstance(strategy, ChangelogSnapshotStrategy)
        storage = MemoryCheckpointStorage(PipelineName("suite"))
        number = CheckpointId(0)
        streams = storage.resolve_checkpoint_storage_location(
            number, storage.initialize_location(number), AttemptId("f" * 32), 0
        )
        take_snapshot(strategy, number, streams, CloseableRegistry())
        strategy.notify_checkpoint_complete(number)
        return strategy


class TestLogOverHeap(_OverEmptyState, _HeapBackend, _Suite):
    pass


class TestLogOverRocksDB(_OverEmptyState, _RocksDBBackend, _Suite):
    pass


class TestMaterialisationOfRocksDBMerged(TestMaterialisationOfRocksDB):
    merging = FileMergingSettings()


class TestLogOverRocksDBMerged(TestLogOverRocksDB):
    merging = FileMergingSettings()
