"""The native snapshot of the heap backend: a stream in the format of Flink's heap backend, which restores it directly.

Source: docs/spec/requirements.md R26 to R32; docs/spec/formats.md#heap-stream (HeapSnapshotStrategy).
"""

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.formats.heap.encoder import HeapStream
from statelib.model.handles import KeyGroupsStateHandle
from statelib.model.ids import CheckpointId
from statelib.snapshots.strategies.canonical import ScanResources, scan_all
from statelib.snapshots.strategy import CheckpointListener, SnapshotResult, empty_snapshot
from statelib.snapshots.uploads.streams import Uploads, local_directory
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.local.store import LocalSnapshotDirectories
from statelib.storage.ports.views import CheckpointStreamFactory


class HeapNativeSnapshotStrategy(CheckpointListener):
    """The :class:`~statelib.snapshots.strategy.SnapshotStrategy` that writes the native form of the heap backend.

    Args:
        backend: The backend to snapshot.
        backend_uid: The id of the backend in the handles. Together with the checkpoint id it names the state.
        compressed: Whether to compress with Snappy.
        local: The directories for local copies; None without local recovery.
    """

    description = "Asynchronous full heap snapshot"

    def __init__(
        self,
        backend: HeapKeyedStateBackend,
        backend_uid: str,
        compressed: bool = True,
        local: LocalSnapshotDirectories | None = None,
    ) -> None:
        self._backend = backend
        self._backend_uid = backend_uid
        self._compressed = compressed
        self._local = local

    def prepare(self, checkpoint_id: CheckpointId) -> ScanResources:  # noqa: ARG002 - the port's signature
        scans = scan_all(self._backend)
        try:
            return ScanResources(scans.scans, scan_all(self._backend).scans)
        except BaseException:
            scans.release()
            raise

    def run(
        self,
        resources: ScanResources,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        schema, key_groups = self._backend.schema, self._backend.key_group_range
        if not schema.states:
            return empty_snapshot(self.description)
        with Uploads(streams, registry, local_directory(self._local, checkpoint_id)) as uploads:
            content = HeapStream(schema, key_groups, resources.scans, self._compressed, again=resources.again)
            written = uploads.write_pieces(content)
            name = f"{self._backend_uid}-{checkpoint_id}"
            handle = KeyGroupsStateHandle(key_groups, content.offsets, written.handle, name)
            return SnapshotResult(handle, uploads.complete())

    def close(self) -> None:
        """Do nothing: the strategy has no threads of its own."""
