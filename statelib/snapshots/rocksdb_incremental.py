"""Incremental snapshot of RocksDB: SST files never change, so those that an earlier checkpoint has are
only referred to.

Source: requirements R52 to R67, R69; flink-formats.md section 8.1 (RocksIncrementalSnapshotStrategy).
"""

import os
from collections.abc import Mapping
from dataclasses import replace

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.rocksdb.checkpoint import NativeCheckpoint
from statelib.backends.rocksdb.database import IMMUTABLE_SUFFIX
from statelib.model.ids import CheckpointId
from statelib.snapshots.previous import NO_PREVIOUS, PreviousSnapshot, SharedFiles
from statelib.snapshots.rocksdb_native import NamedStream, NativeResources, NativeSnapshots
from statelib.snapshots.strategy import CheckpointListener, SnapshotResult, empty_snapshot
from statelib.snapshots.uploads import BLOCK_BYTES, Uploads, local_directory
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.local.store import LocalSnapshotDirectories
from statelib.storage.views import CheckpointedStateScope, CheckpointStreamFactory, WrittenStream
from statelib.wire.checksum import ContentHash


class IncrementalResources(NativeResources):
    """The frozen database, and the base whose files its snapshot may refer to."""

    def __init__(self, checkpoint: NativeCheckpoint | None, previous: PreviousSnapshot) -> None:
        super().__init__(checkpoint)
        self.previous = previous


class RocksDBIncrementalSnapshotStrategy(CheckpointListener):
    """A :class:`~statelib.snapshots.strategy.SnapshotStrategy` that writes only what is new.

    ``restored``: the snapshot whose files the backend's database was opened with, if a later one may
    refer to them, or have them copied. Then the newest snapshot that was notified as completed is the base. ``local``:
    where copies are kept. ``private_scope``: of the files that are each snapshot's own."""

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
            known = self._known(uploads, streams, resources.checkpoint, resources.previous)
            new, private = self._write(uploads, resources.checkpoint, known)
            reused = list(known.items())
            shared = sorted([*new, *reused], key=lambda part: part[0])
            uploaded_bytes = sum(written.size_bytes for _, written in [*new, *private])
            handle = self._native.handle(checkpoint_id, meta, shared, private, uploaded_bytes)
            result = SnapshotResult(handle, uploads.complete(), tuple(written for _, written in reused))
        whole = {written.handle: written for written in (*result.streams, *result.reused)}
        self._shared.take(PreviousSnapshot(checkpoint_id, {name: whole[part.handle] for name, part in shared}))
        return result

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """The next snapshot may refer to this one's files."""
        self._shared.complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        """No snapshot may refer to this one's files; the base stays what it was."""
        self._shared.abort(checkpoint_id)

    def close(self) -> None:
        """Ends the upload threads."""
        self._native.close()

    def _known(
        self,
        uploads: Uploads,
        streams: CheckpointStreamFactory,
        checkpoint: NativeCheckpoint,
        previous: PreviousSnapshot,
    ) -> dict[str, WrittenStream]:
        """The immutable files that need not be written: those of the previous snapshot with the same content, which
        the restore has proved or reading shows, as far as the storage lets them be referred to again."""

        def same(name: str, path: str) -> WrittenStream | None:
            known = previous.files.get(name)
            if known is None:
                return None
            proved = known.xxh3 is not None and self._native.holds(name, path, known)
            return known if proved else _same_content(uploads, path, known)

        immutable = [(name, path) for name, path in checkpoint.files if name.endswith(IMMUTABLE_SUFFIX)]
        found = {name: known for name, known in self._native.in_parallel(uploads, same, immutable) if known}
        kept = streams.reusable(found.values())
        return {
            name: uploads.with_copy(found[name], path, name)
            for name, path in immutable
            if name in found and found[name].handle in kept
        }

    def _write(
        self, uploads: Uploads, checkpoint: NativeCheckpoint, known: Mapping[str, WrittenStream]
    ) -> tuple[list[NamedStream], list[NamedStream]]:
        """Write all other files of the database: the immutable ones, which are shared, and the rest."""
        shared = CheckpointedStateScope.SHARED

        def write(name: str, path: str) -> WrittenStream:
            scope = shared if name.endswith(IMMUTABLE_SUFFIX) else self._private_scope
            return self._native.write_file(uploads, name, path, scope)

        files = [(name, path) for name, path in checkpoint.files if name not in known]
        written = self._native.in_parallel(uploads, write, files)
        new = [part for part in written if part[0].endswith(IMMUTABLE_SUFFIX)]
        return new, [part for part in written if not part[0].endswith(IMMUTABLE_SUFFIX)]


def _same_content(uploads: Uploads, path: str, known: WrittenStream) -> WrittenStream | None:
    """What was written earlier under a local file's name, if the file holds the same bytes: size, CRC-32C and XXH3.

    Of what the first statelib wrote XXH3 is not known; it is from now on."""
    if os.stat(path).st_size != known.size_bytes:
        return None
    content = ContentHash()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            uploads.check_running()
            content.update(block)
    same = content.crc32c == known.crc32c and known.xxh3 in (None, content.xxh3)
    return replace(known, xxh3=content.xxh3) if same else None
