"""What every native snapshot of RocksDB does: freeze the database, then upload its files as they are.

Which files are uploaded and under whose ownership is decided by the strategies.
Source: requirements R33 to R49, R169, R170; flink-formats.md section 8.1.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.rocksdb.checkpoint import NativeCheckpoint
from statelib.formats.keyed.header import encode_header
from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.ids import CheckpointId
from statelib.snapshots.previous import CopyableFile
from statelib.snapshots.upload_threads import UploadThreads
from statelib.snapshots.uploads import Uploads
from statelib.storage.views import CheckpointedStateScope, WrittenStream

T = TypeVar("T")
NamedStream = tuple[str, WrittenStream]
"""RocksDB's own name of a file, and where its bytes lie."""

NOTHING_STORED: Mapping[str, CopyableFile] = MappingProxyType({})


class NativeResources:
    """The frozen database; ``checkpoint`` is None when no state is registered."""

    def __init__(self, checkpoint: NativeCheckpoint | None) -> None:
        self.checkpoint = checkpoint

    def release(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.release()


class NativeSnapshots:
    """Freezing and uploading the database of one backend, with upload threads of its own.

    ``backend_uid`` goes into the handles; with the checkpoint id it names the state. ``stored``: files by RocksDB's
    name that the storage may copy."""

    def __init__(
        self, backend: RocksDBKeyedStateBackend, backend_uid: str, stored: Mapping[str, CopyableFile] = NOTHING_STORED
    ) -> None:
        self._backend = backend
        self._backend_uid = backend_uid
        self._stored = stored
        self._threads = UploadThreads()

    def freeze(self, checkpoint_id: CheckpointId) -> NativeCheckpoint | None:
        """None when no state is registered."""
        return self._backend.checkpoint(checkpoint_id) if self._backend.schema.states else None

    def holds(self, name: str, path: str, stored: WrittenStream) -> bool:
        """Whether a frozen file is the very one that the backend was restored with from what is stored."""
        return self._backend.holds(name, path, stored.handle)

    def write_meta(
        self, uploads: Uploads, scope: CheckpointedStateScope = CheckpointedStateScope.EXCLUSIVE
    ) -> WrittenStream:
        """The meta stream: the keyed header, nothing else."""
        header = encode_header(self._backend.schema, False)
        return uploads.write(lambda stream: stream.write(header), scope)

    def in_parallel(
        self, uploads: Uploads, work: Callable[[str, str], T], files: Iterable[tuple[str, str]]
    ) -> list[tuple[str, T]]:
        """``work(name, path)`` for all files, by name; the first failure stops the others and is raised."""
        return self._threads.run(uploads, work, files)

    def write_file(self, uploads: Uploads, name: str, path: str, scope: CheckpointedStateScope) -> WrittenStream:
        """One file of the frozen database: copied by the storage if the restore has proved it to be a stored one, else
        uploaded."""
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
        """``uploaded_bytes``: of the files that were written for it, ``meta`` not among them."""
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
        """Ends the upload threads."""
        self._threads.close()
