"""The snapshot of state that has not changed: the storage copies the files of an earlier snapshot, without a restore.

Source: docs/spec/requirements.md R93; FLINK-25744, FLINK-25322 (fast duplication).
"""

from collections.abc import Iterator, Mapping

from statelib.model.handles import (
    ByteStreamStateHandle,
    IncrementalRemoteKeyedStateHandle,
    StreamStateHandle,
)
from statelib.model.ids import AttemptId, CheckpointId
from statelib.snapshots.strategy import CheckpointListener, SnapshotResult
from statelib.snapshots.uploads.previous import CopyableFile
from statelib.snapshots.uploads.streams import BLOCK_BYTES, Uploads
from statelib.snapshots.uploads.threads import UploadThreads
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointedStateScope, CheckpointStreamFactory, StateReader, WrittenStream


class NothingFrozen:
    """The resources of a snapshot that needs no live state."""

    def release(self) -> None:
        """Do nothing."""


class StoredRocksDBSnapshotStrategy(CheckpointListener):
    """The :class:`~statelib.snapshots.strategy.SnapshotStrategy` that copies a stored snapshot of RocksDB.

    All files of the copy are exclusive.

    Args:
        handle: The handle of the stored snapshot.
        reader: The reader of the files that the storage cannot copy.
        stored: The files of ``handle`` that the storage may copy, by RocksDB's name.
        backend_uid: The id of the backend in the handle of the copy.
    """

    description = "Copy of a stored RocksDB snapshot"

    def __init__(
        self,
        handle: IncrementalRemoteKeyedStateHandle,
        reader: StateReader,
        stored: Mapping[str, CopyableFile],
        backend_uid: AttemptId,
    ) -> None:
        self._handle = handle
        self._reader = reader
        self._stored = stored
        self._backend_uid = backend_uid
        self._threads = UploadThreads()

    def prepare(self, checkpoint_id: CheckpointId) -> NothingFrozen:  # noqa: ARG002 - the port's signature
        return NothingFrozen()

    def run(
        self,
        resources: NothingFrozen,  # noqa: ARG002 - the port's signature
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        source = self._handle
        with Uploads(streams, registry) as uploads:

            def copy(name: str, stream: StreamStateHandle) -> WrittenStream:
                stored = self._stored.get(name)
                if stored is None:
                    return copied_stream(uploads, self._reader, stream)
                exclusive = CheckpointedStateScope.EXCLUSIVE
                return uploads.duplicate(stored, exclusive, lambda: copied_stream(uploads, self._reader, stream))

            meta = copied_stream(uploads, self._reader, source.meta)
            files = self._threads.run(uploads, copy, (*source.shared, *source.private))
            handle = IncrementalRemoteKeyedStateHandle(
                checkpoint_id=checkpoint_id,
                backend_uid=self._backend_uid,
                key_group_range=source.key_group_range,
                checkpointed_size_bytes=meta.size_bytes + sum(written.size_bytes for _, written in files),
                meta=meta.handle,
                shared=(),
                private=tuple((name, written.handle) for name, written in files),
                state_handle_id=f"{self._backend_uid}-{checkpoint_id}",
            )
            return SnapshotResult(handle, uploads.complete())

    def close(self) -> None:
        """End the upload threads."""
        self._threads.close()


def copied_stream(
    uploads: Uploads,
    reader: StateReader,
    stream: StreamStateHandle,
    scope: CheckpointedStateScope = CheckpointedStateScope.EXCLUSIVE,
) -> WrittenStream:
    """Read a stored stream, write it again block by block, and return the copy.

    Raises:
        CorruptStateError: ``checksum-mismatch``, and other errors of the reader.
        StatelibError: The errors of the storage.
    """
    if isinstance(stream, ByteStreamStateHandle):
        return uploads.write_pieces((stream.data,), scope)
    written = uploads.write_pieces(_blocks(reader, stream), scope)
    reader.check_crc(stream, written.crc32c)
    return written


def _blocks(reader: StateReader, stream: StreamStateHandle) -> Iterator[memoryview]:
    """Yield the content of a stream in blocks of :data:`BLOCK_BYTES`."""
    for start in range(0, stream.size_bytes, BLOCK_BYTES):
        yield reader.read_range(stream, start, min(start + BLOCK_BYTES, stream.size_bytes))
