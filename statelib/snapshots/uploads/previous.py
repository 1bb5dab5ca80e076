"""The files of earlier snapshots that an incremental snapshot may refer to instead of writing them again.

Source: docs/spec/requirements.md R52 to R57, R69 (PreviousSnapshot of Flink).
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from statelib.model.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandleImpl,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    SegmentFileStateHandle,
    SegmentScope,
    StreamStateHandle,
    checksum_key,
    stream_handles,
)
from statelib.model.ids import CheckpointId
from statelib.storage.ports.views import PhysicalFile, WrittenStream
from statelib.wire.checksum import content_hash


@dataclass(frozen=True)
class PreviousChangelog:
    """A completed changelog snapshot that the next one continues, and all its streams. It can be pickled."""

    handle: ChangelogStateBackendHandleImpl
    streams: tuple[WrittenStream, ...] = field(repr=False)


@dataclass(frozen=True)
class CopyableFile:
    """A file that an earlier snapshot wrote and the storage may copy. It can be pickled.

    Attributes:
        stream: The stream of the whole file, as in the handle of that snapshot.
        uri: The absolute URI of the file.
    """

    stream: WrittenStream
    uri: str


@dataclass(frozen=True)
class PreviousSnapshot:
    """A completed snapshot whose shared files later snapshots may refer to. It can be pickled.

    The name of a file does not prove its content: two databases that were restored from one checkpoint give the same
    numbers to different files (protocol F7). So the streams carry the size and the checksums.

    Attributes:
        checkpoint_id: The id of the snapshot; None if there is none.
        files: The stream of each shared file, by RocksDB's name of the file.
        changelog: The snapshot as a changelog snapshot, if the next one can continue it.
        stored: The files that later snapshots may copy but not refer to, by RocksDB's name.
    """

    checkpoint_id: CheckpointId | None = None
    files: Mapping[str, WrittenStream] = field(default_factory=dict, repr=False)
    changelog: PreviousChangelog | None = None
    stored: Mapping[str, CopyableFile] = field(default_factory=dict, repr=False)


NO_PREVIOUS = PreviousSnapshot()
"""The value if there is no earlier snapshot: all files are written."""


Identities = Mapping[str, tuple[int, int, int | None]]
"""Key of a file or a segment -> (size in bytes, CRC-32C, XXH3). The first version of statelib wrote no XXH3: None."""


def previous_snapshot(handle: IncrementalRemoteKeyedStateHandle, identities: Identities) -> PreviousSnapshot:
    """Return the files of a stored RocksDB snapshot that later snapshots may refer to.

    They are its shared files with known size and checksums. Its exclusive files are deleted together with it, so no
    other snapshot may refer to them.

    Args:
        handle: The handle of the stored snapshot.
        identities: The size and the checksums of its files, from its manifest.
    """
    shared = {name: _written_stream(stream, identities) for name, stream in handle.shared}
    files = {name: stream for name, stream in shared.items() if stream is not None}
    return PreviousSnapshot(CheckpointId(handle.checkpoint_id), files)


def previous_changelog(handle: ChangelogStateBackendHandleImpl, identities: Identities) -> PreviousChangelog | None:
    """Return a stored changelog snapshot as one that the next snapshot can continue.

    It is None if a file or segment is exclusive to that snapshot, or its checksums are unknown.

    Args:
        handle: The handle of the stored snapshot.
        identities: The size and the checksums of its files, from its manifest.
    """
    written = [_written_stream(stream, identities) for stream in stream_handles(handle)]
    streams = tuple(stream for stream in written if stream is not None)
    return PreviousChangelog(handle, streams) if len(streams) == len(written) else None


def _written_stream(stream: StreamStateHandle, identities: Identities) -> WrittenStream | None:
    """Return a stream with its size and checksums; None if they are unknown or the stream may not be shared."""
    match stream:
        case ByteStreamStateHandle(_, data):
            checksums = content_hash(data)
            return WrittenStream(stream, len(data), checksums.crc32c, checksums.xxh3)
        case FileStateHandle(path) if path in identities:
            return WrittenStream(stream, *identities[path])
        case SegmentFileStateHandle(path, scope=SegmentScope.SHARED) if {
            path,
            checksum_key(stream),
        } <= identities.keys():
            return WrittenStream(stream, *identities[checksum_key(stream)], PhysicalFile(path, *identities[path]))
        case _:
            return None


class SharedFiles:
    """The shared files of the snapshots that one backend took, and the base of the next snapshot.

    The base is the newest snapshot that was notified as complete, never one that was only taken. The methods may be
    called from any thread."""

    def __init__(self, restored: PreviousSnapshot = NO_PREVIOUS) -> None:
        self._lock = threading.Lock()
        self._taken: dict[CheckpointId, PreviousSnapshot] = {}
        self._completed = restored.checkpoint_id
        if restored.checkpoint_id is not None:
            self._taken[restored.checkpoint_id] = restored

    def base(self) -> PreviousSnapshot:
        """Return the base of the next snapshot; :data:`NO_PREVIOUS` until a snapshot is complete."""
        with self._lock:
            return NO_PREVIOUS if self._completed is None else self._taken.get(self._completed, NO_PREVIOUS)

    def take(self, snapshot: PreviousSnapshot) -> None:
        """Add a snapshot that was written but is not complete yet. It must have an id."""
        assert snapshot.checkpoint_id is not None
        with self._lock:
            self._taken[snapshot.checkpoint_id] = snapshot

    def complete(self, checkpoint_id: CheckpointId) -> None:
        """Make the snapshot the base if it is newer than the present base, and forget older ones.

        An id that :meth:`take` has not added, such as that of a savepoint, is ignored (FLINK-23949)."""
        with self._lock:
            is_newer = self._completed is None or checkpoint_id > self._completed
            if is_newer and checkpoint_id in self._taken:
                self._completed = checkpoint_id
                self._taken = {number: later for number, later in self._taken.items() if number >= checkpoint_id}

    def abort(self, checkpoint_id: CheckpointId) -> None:
        """Forget the snapshot: no later one may refer to its files."""
        with self._lock:
            self._taken.pop(checkpoint_id, None)
