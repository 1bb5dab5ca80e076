"""The full snapshot of RocksDB: its own files, uploaded without a scan and unchanged.

Source: docs/spec/requirements.md R33 to R51; docs/spec/formats.md#rocksdb-handles (RocksNativeFullSnapshotStrategy).
"""

from collections.abc import Mapping

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.model.ids import CheckpointId
from statelib.snapshots.strategies.rocksdb.native import NOTHING_STORED, NativeResources, NativeSnapshots
from statelib.snapshots.strategy import CheckpointListener, SnapshotResult, empty_snapshot
from statelib.snapshots.uploads.previous import CopyableFile
from statelib.snapshots.uploads.streams import Uploads, local_directory
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.local.store import LocalSnapshotDirectories
from statelib.storage.ports.views import CheckpointedStateScope, CheckpointStreamFactory, WrittenStream


class RocksDBFullSnapshotStrategy(CheckpointListener):
    """The :class:`~statelib.snapshots.strategy.SnapshotStrategy` that writes all files of RocksDB as exclusive files.

    Args:
        backend: The backend to snapshot.
        backend_uid: The id of the backend in the handles. Together with the checkpoint id it names the state.
        local: The directories for local copies; None without local recovery.
        stored: The files that the storage may copy instead of an upload, by RocksDB's name.
    """

    description = "Asynchronous full RocksDB snapshot"

    def __init__(
        self,
        backend: RocksDBKeyedStateBackend,
        backend_uid: str,
        local: LocalSnapshotDirectories | None = None,
        stored: Mapping[str, CopyableFile] = NOTHING_STORED,
    ) -> None:
        self._local = local
        self._native = NativeSnapshots(backend, backend_uid, stored)

    def prepare(self, checkpoint_id: CheckpointId) -> NativeResources:
        return NativeResources(self._native.freeze(checkpoint_id))

    def run(
        self,
        resources: NativeResources,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        if resources.checkpoint is None:
            return empty_snapshot(self.description)
        with Uploads(streams, registry, local_directory(self._local, checkpoint_id)) as uploads:

            def upload(name: str, path: str) -> WrittenStream:
                return self._native.write_file(uploads, name, path, CheckpointedStateScope.EXCLUSIVE)

            meta = self._native.write_meta(uploads)
            files = self._native.in_parallel(uploads, upload, resources.checkpoint.files)
            uploaded_bytes = sum(written.size_bytes for _, written in files)
            handle = self._native.handle(checkpoint_id, meta, (), files, uploaded_bytes)
            return SnapshotResult(handle, uploads.complete())

    def close(self) -> None:
        """End the upload threads."""
        self._native.close()
