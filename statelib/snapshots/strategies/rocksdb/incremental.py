"""The incremental snapshot of RocksDB: it refers to the SST files of an earlier checkpoint.

SST files never change, so they need not be written again.

Source: docs/spec/requirements.md R52 to R67, R69; docs/spec/formats.md#rocksdb-handles
(RocksIncrementalSnapshotStrategy).
"""

import os
from collections.abc import Mapping
from dataclasses import replace

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.rocksdb.checkpoint import NativeCheckpoint
from statelib.backends.rocksdb.database import IMMUTABLE_SUFFIX
from statelib.model.ids import CheckpointId
from statelib.snapshots.strategies.rocksdb.native import NamedStream, NativeResources, NativeSnapshots
from statelib.snapshots.strategy import CheckpointListener, SnapshotResult, empty_snapshot
from statelib.snapshots.uploads.previous import NO_PREVIOUS, PreviousSnapshot, SharedFiles
from statelib.snapshots.uploads.streams import BLOCK_BYTES, Uploads, local_directory
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.local.store import LocalSnapshotDirectories
from statelib.storage.ports.views import CheckpointedStateScope, CheckpointStreamFactory, WrittenStream
from statelib.wire.checksum import ContentHash


class IncrementalResources(NativeResources):
    """The frozen database, and the previous snapshot whose files the new one may refer to."""

    def __init__(self, checkpoint: NativeCheckpoint | None, previous: PreviousSnapshot) -> None:
        super().__init__(checkpoint)
        self.previous = previous


class RocksDBIncrementalSnapshotStrategy(CheckpointListener):
    """The :class:`~statelib.snapshots.strategy.SnapshotStrategy` that writes only the new files of RocksDB.

    Args:
        backend: The backend to snapshot.
        backend_uid: The id of the backend in the handles. Together with the checkpoint id it names the state.
        restored: The snapshot whose files the backend's database was opened with, if later ones may refer to them or
            copy them. It is the base until a newer snapshot is notified as complete.
        local: The directories for local copies; None without local recovery.
        private_scope: The scope of the files that belong to one snapshot alone.
    """

    description = "Asynchronous incremental RocksDB snapshot"

    def __init__(
        self,
        backend: RocksDBKeyedStateBackend,
        backend_uid: str,
        restored: PreviousSnapshot = NO_PREVIOUS,
        local: LocalSnapshotDirectories | None = None,
        private_scope: CheckpointedStateScope = CheckpointedStateScope.EXCLUSIVE,
    ) -> None:
        self._local = local
        self._private_scope = private_scope
        self._native = NativeSnapshots(backend, backend_uid, restored.stored)
        self._shared = SharedFiles(restored)

    def prepare(self, checkpoint_id: CheckpointId) -> IncrementalResources:
        base = self._shared.base()
        return IncrementalResources(self._native.freeze(checkpoint_id), base)

    def run(
        self,
        resources: IncrementalResources,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        if resources.checkpoint is None:
            return empty_snapshot(self.description)
        with Uploads(streams, registry, local_directory(self._local, checkpoint_id)) as uploads:
            meta = self._native.write_meta(uploads, self._private_scope)
            unchanged = self._unchanged(uploads, streams, resources.checkpoint, resources.previous)
            new, private = self._write(uploads, resources.checkpoint, unchanged)
            reused = list(unchanged.items())
            shared = sorted([*new, *reused], key=lambda part: part[0])
            uploaded_bytes = sum(written.size_bytes for _, written in [*new, *private])
            handle = self._native.handle(checkpoint_id, meta, shared, private, uploaded_bytes)
            result = SnapshotResult(handle, uploads.complete(), tuple(written for _, written in reused))
        by_handle = {written.handle: written for written in (*result.streams, *result.reused)}
        self._shared.take(PreviousSnapshot(checkpoint_id, {name: by_handle[part.handle] for name, part in shared}))
        return result

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """Make the snapshot the base of the next one, which may refer to its files."""
        self._shared.complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        """Forget the snapshot: no later one may refer to its files. The base does not change."""
        self._shared.abort(checkpoint_id)

    def close(self) -> None:
        """End the upload threads."""
        self._native.close()

    def _unchanged(
        self,
        uploads: Uploads,
        streams: CheckpointStreamFactory,
        checkpoint: NativeCheckpoint,
        previous: PreviousSnapshot,
    ) -> dict[str, WrittenStream]:
        """Return the streams of the immutable files that need not be written, by RocksDB's name.

        They are the files of the previous snapshot that have the same content and that the storage allows to refer to.
        The content is the same if the restore has proved it, or a read of the local file shows it."""

        def same(name: str, path: str) -> WrittenStream | None:
            previous_stream = previous.files.get(name)
            if previous_stream is None:
                return None
            is_proved = previous_stream.xxh3 is not None and self._native.holds(name, path, previous_stream)
            return previous_stream if is_proved else _same_content(uploads, path, previous_stream)

        immutable = [(name, path) for name, path in checkpoint.files if name.endswith(IMMUTABLE_SUFFIX)]
        equal = {name: stream for name, stream in self._native.in_parallel(uploads, same, immutable) if stream}
        reusable = streams.reusable(equal.values())
        return {
            name: uploads.with_copy(equal[name], path, name)
            for name, path in immutable
            if name in equal and equal[name].handle in reusable
        }

    def _write(
        self, uploads: Uploads, checkpoint: NativeCheckpoint, unchanged: Mapping[str, WrittenStream]
    ) -> tuple[list[NamedStream], list[NamedStream]]:
        """Write all files of the database that are not ``unchanged``.

        Return the immutable ones, which are shared, and the private ones."""
        shared = CheckpointedStateScope.SHARED

        def write(name: str, path: str) -> WrittenStream:
            scope = shared if name.endswith(IMMUTABLE_SUFFIX) else self._private_scope
            return self._native.write_file(uploads, name, path, scope)

        files = [(name, path) for name, path in checkpoint.files if name not in unchanged]
        written = self._native.in_parallel(uploads, write, files)
        new = [part for part in written if part[0].endswith(IMMUTABLE_SUFFIX)]
        return new, [part for part in written if not part[0].endswith(IMMUTABLE_SUFFIX)]


def _same_content(uploads: Uploads, path: str, previous: WrittenStream) -> WrittenStream | None:
    """Return the stream ``previous``, of an earlier file with the same name, if the local file has the same content.

    The content is the same if size, CRC-32C and XXH3 are equal. If the first version of statelib wrote the stream, its
    XXH3 is None; it is not compared, and the returned stream has it."""
    if os.stat(path).st_size != previous.size_bytes:
        return None
    content = ContentHash()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            uploads.check_running()
            content.update(block)
    is_same = content.crc32c == previous.crc32c and previous.xxh3 in (None, content.xxh3)
    return replace(previous, xxh3=content.xxh3) if is_same else None
