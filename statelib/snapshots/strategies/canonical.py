"""The canonical snapshot of a keyed backend of any kind: one stream that all backends and Flink can restore.

Source: docs/spec/requirements.md R20 to R32; docs/spec/formats.md#canonical-stream.
"""

from collections.abc import Sequence
from contextlib import ExitStack

from statelib.backends.keyed import KeyedStateBackend, StateScan
from statelib.formats.canonical.encoder import CanonicalStream
from statelib.model.handles import KeyGroupsSavepointStateHandle
from statelib.model.ids import CheckpointId
from statelib.snapshots.strategy import CheckpointListener, SnapshotResult, empty_snapshot
from statelib.snapshots.uploads.streams import Uploads, local_directory
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.local.store import LocalSnapshotDirectories
from statelib.storage.ports.views import CheckpointedStateScope, CheckpointStreamFactory


class ScanResources:
    """The frozen scans of all states, in the order of the schema.

    ``scans`` can be read once. ``again`` holds a second scan of each state, or is empty."""

    def __init__(self, scans: Sequence[StateScan], again: Sequence[StateScan] = ()) -> None:
        self.scans = scans
        self.again = again

    def release(self) -> None:
        """Close all scans."""
        with ExitStack() as stack:  # an error while closing one scan does not leave the others open
            for scan in (*self.scans, *self.again):
                stack.callback(scan.close)


def scan_all(backend: KeyedStateBackend) -> ScanResources:
    """Freeze all states of a backend and return their scans. After an error no scan is left open."""
    scans: list[StateScan] = []
    try:
        scans.extend(backend.scan(d.name) for d in backend.schema.states)
    except BaseException:
        ScanResources(scans).release()
        raise
    return ScanResources(scans)


class CanonicalSnapshotStrategy(CheckpointListener):
    """The :class:`~statelib.snapshots.strategy.SnapshotStrategy` that writes the canonical form of any keyed backend.

    Args:
        backend: The backend to snapshot.
        compressed: Whether to compress with Snappy. Flink restores compressed key groups several times faster.
        local: The directories for local copies; None without local recovery.
        scope: Whether later checkpoints may refer to the stream.
    """

    description = "Asynchronous canonical snapshot"

    def __init__(
        self,
        backend: KeyedStateBackend,
        compressed: bool = True,
        local: LocalSnapshotDirectories | None = None,
        scope: CheckpointedStateScope = CheckpointedStateScope.EXCLUSIVE,
    ) -> None:
        self._backend = backend
        self._compressed = compressed
        self._local = local
        self._scope = scope

    def prepare(self, checkpoint_id: CheckpointId) -> ScanResources:  # noqa: ARG002 - the port's signature
        return scan_all(self._backend)

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
            content = CanonicalStream(schema, key_groups, resources.scans, self._compressed)
            written = uploads.write_pieces(content, self._scope)
            handle = KeyGroupsSavepointStateHandle(key_groups, content.offsets, written.handle)
            return SnapshotResult(handle, uploads.complete())

    def close(self) -> None:
        """Do nothing: the strategy has no threads of its own."""
