"""Full snapshot of RocksDB: its own files, uploaded as they are; nothing is scanned or rewritten.

Source: requirements R33 to R51; flink-formats.md section 8.1 (RocksNativeFullSnapshotStrategy).
"""

from collections.abc import Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.rocksdb.checkpoint import NativeCheckpoint
from statelib.formats.keyed_header import encode_header
from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.ids import CheckpointId
from statelib.snapshots.strategy import EMPTY, SnapshotResult
from statelib.snapshots.uploads import Uploads
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.views import CheckpointOutputStream, CheckpointStreamFactory, WrittenStream

_THREADS = 4
"""As state.backend.rocksdb.checkpoint.transfer.thread.num."""
_BLOCK_BYTES = 1024 * 1024


class RocksDBFullResources:
    """The frozen database; ``checkpoint`` is None when no state is registered."""

    def __init__(self, checkpoint: NativeCheckpoint | None) -> None:
        self.checkpoint = checkpoint

    def release(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.release()


class RocksDBFullSnapshotStrategy:
    """A :class:`~statelib.snapshots.strategy.SnapshotStrategy`: every file exclusive, none shared.

    ``backend_uid`` goes into the handles; with the checkpoint id it names the state."""

    description = "Asynchronous full RocksDB snapshot"

    def __init__(self, backend: RocksDBKeyedStateBackend, backend_uid: str) -> None:
        self._backend = backend
        self._backend_uid = backend_uid
        self._uploader = ThreadPoolExecutor(_THREADS, thread_name_prefix="statelib-upload")

    def prepare(self, checkpoint_id: CheckpointId) -> RocksDBFullResources:
        if not self._backend.schema.states:
            return RocksDBFullResources(None)
        return RocksDBFullResources(self._backend.checkpoint(checkpoint_id))

    def run(
        self,
        resources: RocksDBFullResources,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        if resources.checkpoint is None:
            return EMPTY
        with Uploads(streams, registry) as uploads:
            header = encode_header(self._backend.schema, False)
            meta = uploads.write(lambda stream: stream.write(header))
            files = self._upload(uploads, resources.checkpoint.files)
            handle = IncrementalRemoteKeyedStateHandle(
                checkpoint_id=checkpoint_id,
                backend_uid=self._backend_uid,
                key_group_range=self._backend.key_group_range,
                checkpointed_size_bytes=meta.size_bytes + sum(w.size_bytes for _, w in files),
                meta=meta.handle,
                shared=(),
                private=tuple((name, written.handle) for name, written in files),
                state_handle_id=f"{self._backend_uid}-{checkpoint_id}",
            )
            return SnapshotResult(handle, uploads.complete())

    def close(self) -> None:
        """Ends the upload threads."""
        self._uploader.shutdown(wait=True, cancel_futures=True)

    def _upload(self, uploads: Uploads, files: Iterable[tuple[str, str]]) -> list[tuple[str, WrittenStream]]:
        """All files, in parallel; the first failure stops the others and is raised."""
        running = {name: self._uploader.submit(_upload_file, uploads, path) for name, path in files}
        try:
            done, _ = wait(running.values(), return_when=FIRST_EXCEPTION)
            _raise_first_failure(done)
        except BaseException:
            uploads.stop()
            for future in running.values():
                future.cancel()
            wait(running.values())
            raise
        return [(name, future.result()) for name, future in running.items()]


def _raise_first_failure(done: Iterable[Future[WrittenStream]]) -> None:
    for future in done:
        error = future.exception()
        if error is not None:
            raise error


def _upload_file(uploads: Uploads, path: str) -> WrittenStream:
    def copy(stream: CheckpointOutputStream) -> None:
        with open(path, "rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                stream.write(block)

    return uploads.write(copy)
