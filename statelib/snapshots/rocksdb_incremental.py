"""Incremental snapshot of RocksDB: SST files never change, so those that an earlier checkpoint has are
only referred to.

Source: requirements R52 to R69; flink-formats.md section 8.1 (RocksIncrementalSnapshotStrategy).
"""

import os

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.rocksdb.checkpoint import NativeCheckpoint
from statelib.model.ids import CheckpointId
from statelib.snapshots.previous import (
    NO_PREVIOUS,
    SHARING,
    PreviousSnapshot,
    SharedFiles,
    Sharing,
    SharingFilesStrategy,
)
from statelib.snapshots.rocksdb_native import BLOCK_BYTES, NamedStream, NativeResources, NativeSnapshots, upload_file
from statelib.snapshots.strategy import EMPTY, SnapshotResult
from statelib.snapshots.uploads import Uploads
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.views import CheckpointedStateScope, CheckpointStreamFactory, WrittenStream
from statelib.wire.checksum import crc32c

IMMUTABLE_SUFFIX = ".sst"
"""RocksDB never changes such a file; all others are each snapshot's own (R56)."""


class IncrementalResources(NativeResources):
    """The frozen database, and what was decided with it: the base, and with whom files are shared."""

    def __init__(self, checkpoint: NativeCheckpoint | None, previous: PreviousSnapshot, sharing: Sharing) -> None:
        super().__init__(checkpoint)
        self.previous = previous
        self.sharing = sharing


class RocksDBIncrementalSnapshotStrategy:
    """A :class:`~statelib.snapshots.strategy.SnapshotStrategy` that writes only what is new.

    ``restored``: the snapshot whose files the backend's database was opened with, if a later one may
    refer to them. Then the newest snapshot told to be completed is the base."""

    description = "Asynchronous incremental RocksDB snapshot"

    def __init__(
        self, backend: RocksDBKeyedStateBackend, backend_uid: str, restored: PreviousSnapshot = NO_PREVIOUS
    ) -> None:
        self._native = NativeSnapshots(backend, backend_uid)
        self._shared = SharedFiles(restored)

    def prepare(
        self, checkpoint_id: CheckpointId, sharing: SharingFilesStrategy = SharingFilesStrategy.FORWARD_BACKWARD
    ) -> IncrementalResources:
        how = SHARING[sharing]
        previous = self._shared.base() if how.backward else NO_PREVIOUS
        return IncrementalResources(self._native.freeze(checkpoint_id), previous, how)

    def run(
        self,
        resources: IncrementalResources,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        if resources.checkpoint is None:
            return EMPTY
        with Uploads(streams, registry) as uploads:
            meta = self._native.write_meta(uploads)
            new, reused, private = self._files(uploads, resources.checkpoint, resources)
            shared = sorted([*new, *reused])
            uploaded_bytes = sum(written.size_bytes for _, written in [*new, *private])
            handle = self._native.handle(checkpoint_id, meta, shared, private, uploaded_bytes)
            result = SnapshotResult(handle, uploads.complete(), tuple(written for _, written in reused))
        if resources.sharing.forward:
            self._shared.take(PreviousSnapshot(checkpoint_id, dict(shared)))
        return result

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """The next snapshot may refer to this one's files."""
        self._shared.complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        """No snapshot may refer to this one's files."""
        self._shared.abort(checkpoint_id)

    def close(self) -> None:
        """Ends the upload threads."""
        self._native.close()

    def _files(
        self, uploads: Uploads, checkpoint: NativeCheckpoint, resources: IncrementalResources
    ) -> tuple[list[NamedStream], list[NamedStream], list[NamedStream]]:
        """All files of the database: immutable ones that were written, those that were there, the rest."""

        def keep(name: str, path: str) -> tuple[WrittenStream, bool]:
            if not name.endswith(IMMUTABLE_SUFFIX):
                return upload_file(uploads, path, CheckpointedStateScope.EXCLUSIVE), False
            known = resources.previous.files.get(name)
            if known is not None and _same_content(uploads, path, known):
                return known, True
            return upload_file(uploads, path, resources.sharing.scope), False

        done = self._native.in_parallel(uploads, keep, checkpoint.files)
        reused = [(name, written) for name, (written, known) in done if known]
        written = [(name, written) for name, (written, known) in done if not known]
        new = [part for part in written if part[0].endswith(IMMUTABLE_SUFFIX)]
        return new, reused, [part for part in written if not part[0].endswith(IMMUTABLE_SUFFIX)]


def _same_content(uploads: Uploads, path: str, known: WrittenStream) -> bool:
    """Whether a local file holds the bytes that were written earlier under its name."""
    if os.stat(path).st_size != known.size_bytes:
        return False
    crc = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            uploads.check_running()
            crc = crc32c(block, crc)
    return crc == known.crc32c
