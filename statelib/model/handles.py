"""State handles: values that describe where state is stored and in which format. They do no I/O.

Source: docs/spec/formats.md#stream-handles, #keyed-handles, #handles-of-operator-state; the class names are Flink's.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from statelib.model.key_groups import KeyGroupRange


@dataclass(frozen=True)
class ByteStreamStateHandle:
    """A stream of bytes stored inside ``_metadata`` itself, for small state (tag 1)."""

    name: str
    data: bytes = field(repr=False)

    @property
    def size_bytes(self) -> int:
        return len(self.data)


@dataclass(frozen=True)
class FileStateHandle:
    """A whole file, named by its absolute URI (tag 2)."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class RelativeFileStateHandle:
    """A whole file, named by its path relative to the directory that holds ``_metadata`` (tag 6)."""

    path: str
    size_bytes: int


class SegmentScope(IntEnum):
    """The scope in which a segment is shared; the numbers are Flink's."""

    EXCLUSIVE = 0
    SHARED = 1


@dataclass(frozen=True)
class SegmentFileStateHandle:
    """A segment of a file that holds several (tag 15, Flink 1.20 and later): the ``size_bytes`` bytes from offset
    ``start`` of the file ``path``, an absolute URI. ``logical_id`` only identifies the segment."""

    path: str
    start: int
    size_bytes: int
    scope: SegmentScope
    logical_id: str


@dataclass(frozen=True)
class ChangeFileStateHandle(FileStateHandle):
    """A file of a change log that Flink wrote. ``size_bytes`` is the decompressed size of the content after the first
    byte. The size of the file itself is not stored; it is at most :attr:`most_bytes`."""

    @property
    def most_bytes(self) -> int:
        """Upper bound of the size of the file in bytes. An uncompressed file has one byte more than its content.
        Snappy's framing adds 10 bytes, and 8 bytes per change set, which itself has at least 12 bytes."""
        return 2 * self.size_bytes + 11


FilePart = FileStateHandle | RelativeFileStateHandle | SegmentFileStateHandle
StreamStateHandle = ByteStreamStateHandle | FilePart


@dataclass(frozen=True)
class KeyGroupsStateHandle:
    """A stream of the heap backend (tags 3 and 12). ``offsets``: one per key group, never 0."""

    key_group_range: KeyGroupRange
    offsets: tuple[int, ...] = field(repr=False)
    stream: StreamStateHandle
    state_handle_id: str = ""


@dataclass(frozen=True)
class KeyGroupsSavepointStateHandle:
    """A stream in the canonical savepoint format (tag 7). ``offsets``: one per key group, 0 = it has no entries.

    A restore chooses the canonical reader by this type.
    """

    key_group_range: KeyGroupRange
    offsets: tuple[int, ...] = field(repr=False)
    stream: StreamStateHandle


@dataclass(frozen=True)
class IncrementalRemoteKeyedStateHandle:
    """The files of a RocksDB directory (tag 11). ``shared`` and ``private``: (RocksDB's file name, stream that holds
    the bytes). ``meta``: the stream with the header of the keyed state."""

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
    """A part of a change log, stored in streams (tags 10 and 13). ``segments``: (stream, offset of its change set);
    the offset counts decompressed bytes after the stream's first byte. ``size_bytes``: size of those change sets."""

    key_group_range: KeyGroupRange
    segments: tuple[tuple[StreamStateHandle, int], ...]
    size_bytes: int
    checkpointed_size_bytes: int
    state_handle_id: str
    storage_id: str = "filesystem"


@dataclass(frozen=True)
class InMemoryChangelogStateHandle:
    """A part of a change log, stored inside ``_metadata`` (tag 9). ``changes``: (key group or -1, bytes), oldest
    first."""

    key_group_range: KeyGroupRange
    start: int
    end: int
    changes: tuple[tuple[int, bytes], ...] = field(repr=False)
    state_handle_id: str = ""


ChangelogStateHandle = ChangelogStateHandleStreamImpl | InMemoryChangelogStateHandle


@dataclass(frozen=True)
class ChangelogStateBackendHandleImpl:
    """Materialised state and the log of the changes since then (tags 8 and 14). A restore first reads
    ``materialized``, then applies ``log``. ``materialization_id`` counts the materialisations."""

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
    """The operator state of one subtask (tag 4). ``states``: (name, mode, offsets); mode 0 is SPLIT_DISTRIBUTE,
    1 UNION, 2 BROADCAST; the offsets count bytes from the beginning of ``stream``."""

    states: tuple[tuple[str, int, tuple[int, ...]], ...]
    stream: StreamStateHandle


def whole_file(handle: StreamStateHandle) -> FileStateHandle | None:
    """Return the handle if it stands for a whole file by its absolute URI, whose size it says."""
    return handle if isinstance(handle, FileStateHandle) and not isinstance(handle, ChangeFileStateHandle) else None


def stream_handles(handle: KeyedStateHandle | OperatorStreamStateHandle) -> tuple[StreamStateHandle, ...]:
    """Return every stream that a handle refers to, in the order in which a reader needs them."""
    if isinstance(handle, IncrementalRemoteKeyedStateHandle):
        return (handle.meta, *(h for _, h in handle.shared), *(h for _, h in handle.private))
    if isinstance(handle, ChangelogStateBackendHandleImpl):
        return (*(s for part in handle.materialized for s in stream_handles(part)), *log_streams(handle))
    return (handle.stream,)


def checksum_key(handle: FilePart) -> str:
    """Return the key of a file or segment in a table of checksums: the path of a file, :func:`segment_key` of a
    segment."""
    if isinstance(handle, SegmentFileStateHandle):
        return segment_key(handle.path, handle.start, handle.size_bytes)
    return handle.path


def segment_key(path: str, start: int, size_bytes: int) -> str:
    """Return the key of a segment in a table of checksums. No file that statelib writes has such a name."""
    return f"{path}@{start}+{size_bytes}"


def log_streams(handle: ChangelogStateBackendHandleImpl) -> tuple[StreamStateHandle, ...]:
    """Return the streams of the log, oldest first."""
    parts = [part for part in handle.log if isinstance(part, ChangelogStateHandleStreamImpl)]
    return tuple(stream for part in parts for stream, _ in part.segments)


def materialized_parts(handle: KeyedStateHandle) -> tuple[MaterializedStateHandle, ...]:
    """Return the handles of the materialised state: without the change log, if the handle has one."""
    return handle.materialized if isinstance(handle, ChangelogStateBackendHandleImpl) else (handle,)
