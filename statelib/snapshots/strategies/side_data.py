"""The snapshot of side data: what has changed is written, the rest is referred to or copied.

Source: docs/spec/requirements.md R89 to R93.
"""

from dataclasses import dataclass

from statelib.backends.operator.side_data import FrozenSideData, StoredSideData
from statelib.backends.operator.state import OperatorStateBackend
from statelib.model.checkpoint import SideDataRecord
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.snapshots.strategies.stored import copied_stream
from statelib.snapshots.strategy import CheckpointListener, SnapshotResult
from statelib.snapshots.uploads.previous import CopyableFile
from statelib.snapshots.uploads.streams import Uploads
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointedStateScope, CheckpointStreamFactory, WrittenStream


@dataclass
class SideDataCopy:
    """The side data at one moment."""

    contents: tuple[FrozenSideData, ...]

    def release(self) -> None:
        """Free the bytes."""
        self.contents = ()


class SideDataSnapshotStrategy(CheckpointListener):
    """The :class:`~statelib.snapshots.strategy.SnapshotStrategy` that writes the side data of one subtask.

    Its results have only ``side_data``. Its streams are task-owned in a checkpoint, because later checkpoints may refer
    to them, and exclusive in a savepoint, which depends on nothing else.

    Args:
        backend: The backend that holds the side data.
        key_group_range: The key groups of the subtask.
        refers: Whether the snapshot may refer to files of earlier snapshots. A savepoint never does.
    """

    description = "Snapshot of side data"

    def __init__(self, backend: OperatorStateBackend, key_group_range: KeyGroupRange, *, refers: bool) -> None:
        self._backend = backend
        self._key_group_range = key_group_range
        self._refers = refers

    def prepare(self, checkpoint_id: CheckpointId) -> SideDataCopy:  # noqa: ARG002 - the port's signature
        return SideDataCopy(self._backend.frozen_side_data())

    def run(
        self,
        resources: SideDataCopy,
        checkpoint_id: CheckpointId,  # noqa: ARG002 - the port's signature
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        records: list[SideDataRecord] = []
        reused: dict[StreamStateHandle, WrittenStream] = {}
        copies: dict[StreamStateHandle, WrittenStream] = {}
        with Uploads(streams, registry) as uploads:
            for content in resources.contents:
                if content.written is not None:
                    written = uploads.write_pieces([content.written])
                    records.append(_record(content.name, self._key_group_range, written))
                for part in content.stored:
                    if part.stream is None:
                        records.append(SideDataRecord(part.name, part.key_group_range, part.handle))
                    elif self._refers and part.can_be_referred_to:
                        reused[part.handle] = part.stream
                        records.append(SideDataRecord(part.name, part.key_group_range, part.handle))
                    else:
                        copies[part.handle] = copies.get(part.handle) or _copied(uploads, part, part.stream)
                        records.append(_record(part.name, part.key_group_range, copies[part.handle]))
            return SnapshotResult(None, uploads.complete(), tuple(reused.values()), side_data=tuple(records))

    def close(self) -> None:
        """Do nothing: the strategy holds no resources."""


def _copied(uploads: Uploads, part: StoredSideData, stream: WrittenStream) -> WrittenStream:
    """Return a copy of an earlier snapshot's file. The storage makes it if it can."""
    return uploads.duplicate(
        CopyableFile(stream, part.uri),
        CheckpointedStateScope.EXCLUSIVE,
        lambda: copied_stream(uploads, part.reader, part.handle),
    )


def _record(name: str, key_group_range: KeyGroupRange, written: WrittenStream) -> SideDataRecord:
    handle = written.handle
    if isinstance(handle, ByteStreamStateHandle):
        handle = ByteStreamStateHandle(name, handle.data)
    assert isinstance(handle, FileStateHandle | RelativeFileStateHandle | ByteStreamStateHandle), "never merged"
    return SideDataRecord(name, key_group_range, handle)
