"""State handles: values that say where state lies and what reads it. They never do I/O.

Source: flink-formats.md sections 4.3 to 4.5; the class names are Flink's.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from statelib.model.key_groups import KeyGroupRange


@dataclass(frozen=True)
class ByteStreamStateHandle:
    """State small enough to live inside ``_metadata`` itself (tag 1)."""

    name: str
    data: bytes = field(repr=False)

    @property
    def size_bytes(self) -> int:
        return len(self.data)


@dataclass(frozen=True)
class FileStateHandle:
    """A file by absolute URI (tag 2)."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class RelativeFileStateHandle:
    """A file by its path relative to the directory that holds ``_metadata`` (tag 6)."""

    path: str
    size_bytes: int


class SegmentScope(IntEnum):
    """With whom a segment is shared, by Flink's number."""

    EXCLUSIVE = 0
    SHARED = 1


@dataclass(frozen=True)
class SegmentFileStateHandle:
    """A piece of a file that holds many (tag 15, Flink 1.20 and later): ``size_bytes`` at ``start`` of
    ``path``, an absolute URI. ``logical_id`` is only an identity."""

    path: str
    start: int
    size_bytes: int
    scope: SegmentScope
    logical_id: str


@dataclass(frozen=True)
class ChangeFileStateHandle(FileStateHandle):
    """A file of a change log that Flink wrote. ``size_bytes`` is what it holds behind its first byte, decompressed;
    how large the file itself is, nothing says: :attr:`most_bytes` at most."""

    @property
    def most_bytes(self) -> int:
        """Uncompressed it has one byte more; Snappy's framing adds 10 bytes, and 8 to each set of changes, which has
        12 or more of its own."""
        return 2 * self.size_bytes + 11


FilePart = FileStateHandle | RelativeFileStateHandle | SegmentFileStateHandle
StreamStateHandle = ByteStreamStateHandle | FilePart


@dataclass(frozen=True)
class KeyGroupsStateHandle:
    """Heap stream (tags 3 and 12): one offset a key group, always set."""

    key_group_range: KeyGroupRange
    offsets: tuple[int, ...] = field(repr=False)
    stream: StreamStateHandle
    state_handle_id: str = ""


@dataclass(frozen=True)
class KeyGroupsSavepointStateHandle:
    """Canonical stream (tag 7): one offset a key group, 0 = that key group has no entry.

    The type itself is the marker that routes a restore to the canonical reader.
    """

    key_group_range: KeyGroupRange
    offsets: tuple[int, ...] = field(repr=False)
    stream: StreamStateHandle


@dataclass(frozen=True)
class IncrementalRemoteKeyedStateHandle:
    """Files of a RocksDB directory (tag 11): ``shared`` and ``private`` map RocksDB's own file
    names to where the bytes lie; ``meta`` is the stream with the keyed header."""

    checkpoint_id: int
    backend_uid: str
    key_group_range: KeyGroupRange
    checkpointed_size_bytes: int
    meta: StreamStateHandle
    shared: tuple[tuple[str, StreamStateHandle], ...]
    private: tuple[tuple[str, StreamStateHandle], ...]
    state_handle_id: str


MaterializedStateHandle = KeyGroupsStateHandle | KeyGroupsSavepointStateHandle | IncrementalRemoteKeyedStateHandle


@dataclass(frozen=True)
class ChangelogStateHandleStreamImpl:
    """A part of a change log in streams (tags 10 and 13). ``segments``: (stream, offset of its change set);
    the offset counts the bytes behind the stream's first one, decompressed. ``size_bytes``: of those sets."""

    key_group_range: KeyGroupRange
    segments: tuple[tuple[StreamStateHandle, int], ...]
    size_bytes: int
    checkpointed_size_bytes: int
    state_handle_id: str
    storage_id: str = "filesystem"


@dataclass(frozen=True)
class InMemoryChangelogStateHandle:
    """A part of a change log inside ``_metadata`` (tag 9). ``changes``: (key group or -1, bytes) in order."""

    key_group_range: KeyGroupRange
    start: int
    end: int
    changes: tuple[tuple[int, bytes], ...] = field(repr=False)
    state_handle_id: str = ""


ChangelogStateHandle = ChangelogStateHandleStreamImpl | InMemoryChangelogStateHandle


@dataclass(frozen=True)
class ChangelogStateBackendHandleImpl:
    """Materialised state and the log of what changed since (tags 8 and 14), to be applied in this order.
    ``materialization_id`` counts the materialisations."""

    key_group_range: KeyGroupRange
    checkpointed_size_bytes: int
    materialized: tuple[MaterializedStateHandle, ...]
    log: tuple[ChangelogStateHandle, ...]
    materialization_id: int
    checkpoint_id: int
    state_handle_id: str = ""


KeyedStateHandle = MaterializedStateHandle | ChangelogStateBackendHandleImpl


@dataclass(frozen=True)
class OperatorStreamStateHandle:
    """Operator state (tag 4). ``states``: (name, mode, offsets), mode 0 SPLIT_DISTRIBUTE,
    1 UNION, 2 BROADCAST; the offsets are absolute in ``stream``."""

    states: tuple[tuple[str, int, tuple[int, ...]], ...]
    stream: StreamStateHandle


def stream_handles(handle: KeyedStateHandle | OperatorStreamStateHandle) -> tuple[StreamStateHandle, ...]:
    """Every stream that a handle refers to, in the order a reader needs them."""
    if isinstance(handle, IncrementalRemoteKeyedStateHandle):
        return (handle.meta, *(h for _, h in handle.shared), *(h for _, h in handle.private))
    if isinstance(handle, ChangelogStateBackendHandleImpl):
        return (*(s for part in handle.materialized for s in stream_handles(part)), *log_streams(handle))
    return (handle.stream,)


def checksum_key(handle: FilePart) -> str:
    """What checksums of its bytes are kept under: a file's path; of a segment also where it lies in the file."""
    if isinstance(handle, SegmentFileStateHandle):
        return segment_key(handle.path, handle.start, handle.size_bytes)
    return handle.path


def segment_key(path: str, start: int, size_bytes: int) -> str:
    """The key of a segment; no file of statelib's has such a name."""
    return f"{path}@{start}+{size_bytes}"


def log_streams(handle: ChangelogStateBackendHandleImpl) -> tuple[StreamStateHandle, ...]:
    """The streams of the log, oldest first."""
    parts = [part for part in handle.log if isinstance(part, ChangelogStateHandleStreamImpl)]
    return tuple(stream for part in parts for stream, _ in part.segments)


def materialized_parts(handle: KeyedStateHandle) -> tuple[MaterializedStateHandle, ...]:
    """The handle without a log that may lie over it."""
    return handle.materialized if isinstance(handle, ChangelogStateBackendHandleImpl) else (handle,)
