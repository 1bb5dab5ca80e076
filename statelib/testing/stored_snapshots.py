"""Snapshots of a small state in local files, for tests that restore them, some after damaging a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.model.handles import (
    IncrementalRemoteKeyedStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
    stream_handles,
)
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.restore.plan import RestoreSource
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategy import SnapshotStrategy, take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from statelib.storage.ports.views import CheckpointStreamFactory
from statelib.testing.keyed_samples import all_entries, fill, sample_schema

UID = "5a7b0000-0000-0000-0000-000000000000"
KEY_GROUPS = KeyGroupRange(0, 127)


@dataclass(frozen=True)
class Stored:
    """A stored snapshot. ``source`` reads it without checksums, so that only the restore itself can notice damage.
    ``entries``: the entries of the backend as bytes, by the name of their state."""

    source: RestoreSource
    directory: Path
    entries: dict[str, dict[bytes, bytes]]

    def path(self, prefix: str) -> Path:
        """Return the path of the one stored file whose name in RocksDB begins with ``prefix``. Other snapshots
        have only one file, whose path is returned for any ``prefix``."""
        handle = self.source.handle
        if not isinstance(handle, IncrementalRemoteKeyedStateHandle):
            (stream,) = stream_handles(handle)
            return self.directory / _relative(stream)
        (matching,) = [stream for name, stream in handle.private if name.startswith(prefix)]
        return self.directory / _relative(matching)


def _relative(stream: StreamStateHandle) -> str:
    assert isinstance(stream, RelativeFileStateHandle)
    return stream.path


def _streams(root: Path) -> tuple[Path, CheckpointStreamFactory]:
    storage = FileSystemCheckpointStorage(str(root), PipelineName("unit"), 0)
    reference = storage.initialize_location(CheckpointId(1))
    streams = storage.resolve_checkpoint_storage_location(CheckpointId(1), reference, AttemptId("0" * 32), 0)
    return Path(reference.directory.removeprefix("file://")), streams


def stored_canonical(root: Path, compressed: bool) -> Stored:
    """Store a canonical snapshot of the sample state, taken of a heap backend."""
    backend = HeapKeyedStateBackend(sample_schema(), KEY_GROUPS)
    fill(backend, 60)
    return _store(backend, CanonicalSnapshotStrategy(backend, compressed), root)


def stored_heap(root: Path, compressed: bool) -> Stored:
    """Store a native snapshot of the sample state, taken of a heap backend."""
    backend = HeapKeyedStateBackend(sample_schema(), KEY_GROUPS)
    fill(backend, 60)
    return _store(backend, HeapNativeSnapshotStrategy(backend, UID, compressed), root)


def stored_rocksdb(root: Path, working_directory: Path) -> Stored:
    """Store a full RocksDB snapshot of the sample state. The working directory is removed at the end."""
    backend = RocksDBKeyedStateBackend(sample_schema(), KEY_GROUPS, str(working_directory), UID)
    fill(backend, 60)
    return _store(backend, RocksDBFullSnapshotStrategy(backend, UID), root)


def _store(backend: KeyedStateBackend, strategy: SnapshotStrategy[Any], root: Path) -> Stored:
    directory, streams = _streams(root)
    result = take_snapshot(strategy, CheckpointId(1), streams, CloseableRegistry())
    assert result.keyed is not None
    source = RestoreSource(result.keyed, DirectoryReader(directory.as_uri()), backend.schema, backend.statistics())
    stored = Stored(source, directory, all_entries(backend))
    strategy.close()
    backend.close()
    return stored
