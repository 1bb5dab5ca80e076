"""What every native snapshot of RocksDB does: freeze the database, then upload its files as they are.

Which files are uploaded and under whose ownership is decided by the strategies.
Source: requirements R33 to R49, R169, R170; flink-formats.md section 8.1.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.rocksdb.checkpoint import NativeCheckpoint
from statelib.formats.keyed.header import encode_header
from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.ids import CheckpointId
from statelib.snapshots.uploads import Uploads
from statelib.storage.views import CheckpointedStateScope, WrittenStream

T = TypeVar("T")
NamedStream = tuple[str, WrittenStream]
"""RocksDB's own name of a file, and where its bytes lie."""

_THREADS = 4
"""As state.backend.rocksdb.checkpoint.transfer.thread.num."""


class NativeResources:
    """The frozen database; ``checkpoint`` is None when no state is registered."""

    def __init__(self, checkpoint: NativeCheckpoint | None) -> None:
        self.checkpoint = checkpoint

    def release(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.release()


class NativeSnapshots:
    """Freezing and uploading the database of one backend, with upload threads of its own.

    ``backend_uid`` goes into the handles; with the checkpoint id it names the state."""

    def __init__(self, backend: RocksDBKeyedStateBackend, backend_uid: str) -> None:
        self._backend = backend
        self._backend_uid = backend_uid
        self._uploader = ThreadPoolExecutor(_THREADS, thread_name_prefix="statelib-upload")

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
        running: dict[str, Future[T]] = {}
        try:
            for name, path in files:
                running[name] = self._uploader.submit(copy_context().run, work, name, path)
            done, _ = wait(running.values(), return_when=FIRST_EXCEPTION)
            _raise_first_failure(done)
        except BaseException:
            uploads.stop()
            for future in running.values():
                future.cancel()
            wait(running.values())
            raise
        return [(name, future.result()) for name, future in running.items()]

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
        self._uploader.shutdown(wait=True, cancel_futures=True)


def _raise_first_failure(done: Iterable[Future[T]]) -> None:
    for future in done:
        error = future.exception()
        if error is not None:
            raise error
