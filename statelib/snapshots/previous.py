"""What an incremental snapshot may refer to instead of writing it again.

Source: requirements R52 to R57, R69 (PreviousSnapshot of Flink).
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
from statelib.storage.views import PhysicalFile, WrittenStream
from statelib.wire.checksum import content_hash


@dataclass(frozen=True)
class PreviousChangelog:
    """A completed changelog snapshot that the next one continues, and all its streams. Picklable."""

    handle: ChangelogStateBackendHandleImpl
    streams: tuple[WrittenStream, ...] = field(repr=False)


@dataclass(frozen=True)
class CopyableFile:
    """A whole file that an earlier snapshot wrote: its stream as that snapshot's handle names it, and its absolute
    URI. Picklable."""

    stream: WrittenStream
    uri: str


@dataclass(frozen=True)
class PreviousSnapshot:
    """The shared files of a completed snapshot: RocksDB's file name -> where its bytes lie, and what
    they are. A name alone proves nothing: two databases restored from one checkpoint both go on with
    the same number (protocol F7). ``changelog``: the snapshot itself, if it can be continued.
    ``stored``: files by RocksDB's name that may not be referred to, but copied. Picklable."""

    checkpoint_id: CheckpointId | None = None
    files: Mapping[str, WrittenStream] = field(default_factory=dict, repr=False)
    changelog: PreviousChangelog | None = None
    stored: Mapping[str, CopyableFile] = field(default_factory=dict, repr=False)


NO_PREVIOUS = PreviousSnapshot()


Identities = Mapping[str, tuple[int, int, int | None]]
"""Key of a file or a segment -> (size in bytes, crc32c, xxh3; None where the first statelib wrote it)."""


def previous_snapshot(handle: IncrementalRemoteKeyedStateHandle, identities: Identities) -> PreviousSnapshot:
    """What may be shared of a stored snapshot.

    Its exclusive files are not (they go when it goes), nor is one of which nothing is known."""
    found = {name: _known(stream, identities) for name, stream in handle.shared}
    files = {name: stream for name, stream in found.items() if stream is not None}
    return PreviousSnapshot(CheckpointId(handle.checkpoint_id), files)


def previous_changelog(handle: ChangelogStateBackendHandleImpl, identities: Identities) -> PreviousChangelog | None:
    """The stored snapshot as one to continue; None if it has an exclusive file, or one of which nothing is known."""
    found = [_known(stream, identities) for stream in stream_handles(handle)]
    streams = tuple(stream for stream in found if stream is not None)
    return PreviousChangelog(handle, streams) if len(streams) == len(found) else None


def _known(stream: StreamStateHandle, identities: Identities) -> WrittenStream | None:
    match stream:
        case ByteStreamStateHandle(_, data):
            found = content_hash(data)
            return WrittenStream(stream, len(data), found.crc32c, found.xxh3)
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
    """The shared files of the snapshots that one backend took, and which of them is the base of the next.

    The base is the newest snapshot that was confirmed as completed, never one that was only taken.
    Thread-safe: completions and abortions are told by whoever learns of them."""

    def __init__(self, restored: PreviousSnapshot = NO_PREVIOUS) -> None:
        self._lock = threading.Lock()
        self._taken: dict[CheckpointId, PreviousSnapshot] = {}
        self._completed = restored.checkpoint_id
        if restored.checkpoint_id is not None:
            self._taken[restored.checkpoint_id] = restored

    def base(self) -> PreviousSnapshot:
        """Empty until a snapshot has completed: then everything is written."""
        with self._lock:
            return NO_PREVIOUS if self._completed is None else self._taken.get(self._completed, NO_PREVIOUS)

    def take(self, snapshot: PreviousSnapshot) -> None:
        """A snapshot was written; whether it completes is not known yet."""
        assert snapshot.checkpoint_id is not None
        with self._lock:
            self._taken[snapshot.checkpoint_id] = snapshot

    def complete(self, checkpoint_id: CheckpointId) -> None:
        """It becomes the base if it is newer than the present one and was taken here: a savepoint's id,
        which is not known, changes nothing (FLINK-23949). What is older is forgotten."""
        with self._lock:
            newer = self._completed is None or checkpoint_id > self._completed
            if newer and checkpoint_id in self._taken:
                self._completed = checkpoint_id
                self._taken = {number: s for number, s in self._taken.items() if number >= checkpoint_id}

    def abort(self, checkpoint_id: CheckpointId) -> None:
        """It will never be referred to."""
        with self._lock:
            self._taken.pop(checkpoint_id, None)
