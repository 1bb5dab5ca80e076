"""State handles: values that say where state lies and what reads it. They never do I/O.

Source: flink-formats.md sections 4.3 to 4.5; the class names are Flink's.
"""

from dataclasses import dataclass, field

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


StreamStateHandle = ByteStreamStateHandle | FileStateHandle | RelativeFileStateHandle


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


KeyedStateHandle = KeyGroupsStateHandle | KeyGroupsSavepointStateHandle | IncrementalRemoteKeyedStateHandle


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
    return (handle.stream,)
