"""The steps that all native snapshots of RocksDB share: freeze the database, then upload its files unchanged.

The strategies decide which files are uploaded, and whether they are shared. Source: docs/spec/requirements.md R33 to
R49, R169, R170; docs/spec/formats.md#rocksdb-handles.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.rocksdb.checkpoint import NativeCheckpoint
from statelib.formats.keyed.header import encode_header
from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.ids import CheckpointId
from statelib.snapshots.uploads.previous import CopyableFile
from statelib.snapshots.uploads.streams import Uploads
from statelib.snapshots.uploads.threads import UploadThreads
from statelib.storage.ports.views import CheckpointedStateScope, WrittenStream

T = TypeVar("T")
NamedStream = tuple[str, WrittenStream]
"""(RocksDB's name of a file, its stream)."""

NOTHING_STORED: Mapping[str, CopyableFile] = MappingProxyType({})
"""The value if there are no files that the storage may copy."""


class NativeResources:
    """The frozen database. ``checkpoint`` is None if no state is registered."""

    def __init__(self, checkpoint: NativeCheckpoint | None) -> None:
        self.checkpoint = checkpoint

    def release(self) -> None:
        """Release the frozen database."""
        if self.checkpoint is not None:
            self.checkpoint.release()


class NativeSnapshots:
    """The snapshot steps for the database of one backend, with upload threads of its own.

    Args:
        backend: The backend to snapshot.
        backend_uid: The id of the backend in the handles. Together with the checkpoint id it names the state.
        stored: The files that the storage may copy instead of an upload, by RocksDB's name.
    """

    def __init__(
        self, backend: RocksDBKeyedStateBackend, backend_uid: str, stored: Mapping[str, CopyableFile] = NOTHING_STORED
    ) -> None:
        self._backend = backend
        self._backend_uid = backend_uid
        self._stored = stored
        self._threads = UploadThreads()

    def freeze(self, checkpoint_id: CheckpointId) -> NativeCheckpoint | None:
        """Return the frozen database; None if no state is registered."""
        return self._backend.checkpoint(checkpoint_id) if self._backend.schema.states else None

    def holds(self, name: str, path: str, stored: WrittenStream) -> bool:
        """Return whether a frozen file is unchanged since the backend was restored with it.

        Args:
            name: RocksDB's name of the file.
            path: The path of the frozen file.
            stored: The stored stream that the restored file must have come from.
        """
        return self._backend.holds(name, path, stored.handle)

    def write_meta(
        self, uploads: Uploads, scope: CheckpointedStateScope = CheckpointedStateScope.EXCLUSIVE
    ) -> WrittenStream:
        """Write the meta stream, which contains only the header of the keyed state."""
        header = encode_header(self._backend.schema, False)
        return uploads.write(lambda stream: stream.write(header), scope)

    def in_parallel(
        self, uploads: Uploads, work: Callable[[str, str], T], files: Iterable[tuple[str, str]]
    ) -> list[tuple[str, T]]:
        """Return (name, ``work(name, path)``) per file. The first error stops the others and is raised."""
        return self._threads.run(uploads, work, files)

    def write_file(self, uploads: Uploads, name: str, path: str, scope: CheckpointedStateScope) -> WrittenStream:
        """Write one file of the frozen database.

        The storage copies it if the restore has proved that it is a stored file; otherwise it is uploaded."""
        stored = self._stored.get(name)
        if stored is None or not self.holds(name, path, stored.stream):
            return uploads.write_file(path, name, scope)
        return uploads.duplicate_file(stored, path, name, scope)

    def handle(
        self,
        checkpoint_id: CheckpointId,
        meta: WrittenStream,
        shared: Iterable[NamedStream],
        private: Iterable[NamedStream],
        uploaded_bytes: int,
    ) -> IncrementalRemoteKeyedStateHandle:
        """Return the handle of a snapshot.

        Args:
            checkpoint_id: The id of the checkpoint.
            meta: The meta stream.
            shared: The files that later snapshots may refer to.
            private: The other files.
            uploaded_bytes: The size in bytes of the files that were written for it, without ``meta``.
        """
        return IncrementalRemoteKeyedStateHandle(
            checkpoint_id=checkpoint_id,
            backend_uid=self._backend_uid,
            key_group_range=self._backend.key_group_range,
            checkpointed_size_bytes=meta.size_bytes + uploaded_bytes,
            meta=meta.handle,
            shared=tuple((name, written.handle) for name, written in shared),
            private=tuple((name, written.handle) for name, written in private),
            state_handle_id=f"{self._backend_uid}-{checkpoint_id}",
        )

    def close(self) -> None:
        """End the upload threads."""
        self._threads.close()
