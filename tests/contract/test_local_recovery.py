"""Every snapshot strategy keeps its contract with local recovery, and its local copies are enough for a restore."""

from pathlib import Path
from typing import Any

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.restore.stored.rocksdb_files import materialise
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.changelog import ChangelogSnapshotStrategy, MaterializationLimits
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import SnapshotStrategy
from statelib.storage.local.store import LocalSnapshotDirectories
from statelib.storage.ports.views import CheckpointedStateScope
from statelib.testing.keyed_samples import fill
from statelib.testing.suites.local_recovery import LocalRecoverySuite
from statelib.testing.suites.strategy import Stage
from statelib.wire.checksum import crc32c

UID = "5a7b0000-0000-0000-0000-000000000000"


class _Heap(LocalRecoverySuite):
    def new_backend(
        self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path
    ) -> KeyedStateBackend:
        return HeapKeyedStateBackend(schema, key_group_range)

    def restore(self, source: RestoreSource, directory: Path) -> KeyedStateBackend:
        return restore_heap(source.schema, source.handle.key_group_range, [source])


class _RocksDB(LocalRecoverySuite):
    def new_backend(
        self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path
    ) -> RocksDBKeyedStateBackend:
        return RocksDBKeyedStateBackend(schema, key_group_range, str(directory), UID)

    def restore(self, source: RestoreSource, directory: Path) -> KeyedStateBackend:
        return restore_rocksdb(source.schema, source.handle.key_group_range, [source], str(directory), UID)


class TestCanonicalOfHeap(_Heap):
    handle_type: type[KeyedStateHandle] = KeyGroupsSavepointStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        return CanonicalSnapshotStrategy(backend, local=self.directories)


class TestNativeOfHeap(_Heap):
    handle_type: type[KeyedStateHandle] = KeyGroupsStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, HeapKeyedStateBackend)
        return HeapNativeSnapshotStrategy(backend, UID, local=self.directories)


class TestCanonicalOfRocksDB(_RocksDB):
    handle_type: type[KeyedStateHandle] = KeyGroupsSavepointStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        return CanonicalSnapshotStrategy(backend, local=self.directories)


class TestFullOfRocksDB(_RocksDB):
    handle_type: type[KeyedStateHandle] = IncrementalRemoteKeyedStateHandle

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, RocksDBKeyedStateBackend)
        return RocksDBFullSnapshotStrategy(backend, UID, self.directories)


class TestIncrementalOfRocksDB(_RocksDB):
    handle_type: type[KeyedStateHandle] = IncrementalRemoteKeyedStateHandle
    scopes = frozenset(CheckpointedStateScope)

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, RocksDBKeyedStateBackend)
        return RocksDBIncrementalSnapshotStrategy(backend, UID, local=self.directories)

    def test_sst_files_are_links_and_the_others_are_not(self, stage: Stage, tmp_path: Path) -> None:
        result, files = self.taken(stage)
        _, reader = self.reader(stage, files)
        assert isinstance(result.keyed, IncrementalRemoteKeyedStateHandle)
        materialise(result.keyed, reader, tmp_path / "again", with_options=True)
        linked = {p.name for p in (tmp_path / "again").iterdir() if p.stat().st_ino in self.inodes()}
        assert linked == {name for name, _ in result.keyed.shared}
        assert linked < {p.name for p in (tmp_path / "again").iterdir()}

    def test_a_database_opened_from_copies_does_not_change_them(self, stage: Stage, tmp_path: Path) -> None:
        result, files = self.taken(stage)
        _, reader = self.reader(stage, files)
        restored = self.restore(self.source(stage, result, reader), tmp_path / "again")
        fill(restored, 300)
        restored.close()
        for each in self.store.find(CheckpointId(1), files).values():
            content = (Path(each.directory) / each.copy.name).read_bytes()
            assert (len(content), crc32c(content)) == (each.copy.size_bytes, each.copy.crc32c)

    def inodes(self) -> set[int]:
        return {path.stat().st_ino for path in self.store.path.rglob("*") if path.is_file()}


LIMITS = MaterializationLimits(1 << 20, 3)


class _Logging:
    """A backend with a log, which is materialised, around those of another base class."""

    handle_type = ChangelogStateBackendHandleImpl
    scopes = frozenset({CheckpointedStateScope.SHARED})
    directories: LocalSnapshotDirectories

    def new_backend(
        self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path
    ) -> KeyedStateBackend:
        inner = super().new_backend(schema, key_group_range, directory)
        return ChangelogKeyedStateBackend(inner, 1 << 20)

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        assert isinstance(backend, ChangelogKeyedStateBackend)
        scope, local = CheckpointedStateScope.SHARED, self.directories
        materializer: SnapshotStrategy[Any] = (
            RocksDBIncrementalSnapshotStrategy(backend.inner, UID, local=local, private_scope=scope)
            if isinstance(backend.inner, RocksDBKeyedStateBackend)
            else CanonicalSnapshotStrategy(backend.inner, local=local, scope=scope)
        )
        return ChangelogSnapshotStrategy(backend, UID, materializer, LIMITS)


class TestMaterialisationOfHeap(_Logging, _Heap):
    pass


class TestMaterialisationOfRocksDB(_Logging, _RocksDB):
    pass
