"""What lies behind a KeyGroupsStateHandle of Flink's: the heap's own stream, or a canonical one.

Flink 1.13 gave canonical streams a handle of their own; before that savepoints of either backend, and RocksDB's full
checkpoints up to 1.15, hold them behind the same handle as the heap's. Source: flink-formats.md sections 0, 3.1, 3.2.
"""

from dataclasses import replace

from statelib.errors import CorruptStateError, StatelibError
from statelib.formats.canonical.reading import decode_key_group
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    MaterializedStateHandle,
)
from statelib.storage.views import StateReader

_KEY_GROUP_BYTES = 4


def recognised(reader: StateReader, handle: KeyedStateHandle) -> KeyedStateHandle:
    """The handle with the type that its bytes have. What cannot be read stays as it is: its reader says why."""
    if isinstance(handle, ChangelogStateBackendHandleImpl):
        return replace(handle, materialized=tuple(_recognised(reader, part) for part in handle.materialized))
    return _recognised(reader, handle)


def _recognised(reader: StateReader, handle: MaterializedStateHandle) -> MaterializedStateHandle:
    if not isinstance(handle, KeyGroupsStateHandle):
        return handle
    try:
        canonical = _is_canonical(reader, handle)
    except StatelibError:
        return handle
    return KeyGroupsSavepointStateHandle(handle.key_group_range, handle.offsets, handle.stream) if canonical else handle


def _is_canonical(reader: StateReader, handle: KeyGroupsStateHandle) -> bool:
    """In the heap's stream every key group has an offset, where its number stands. In a canonical one a key group
    begins with a state's id and the upper half of a key's length, or with the mark of a compressed stream: these are
    the number of no key group but 0."""
    if 0 in handle.offsets:
        return True
    if not handle.offsets:
        return False
    key_group, offset = handle.key_group_range.end, handle.offsets[-1]
    head = reader.read_range(handle.stream, offset, offset + _KEY_GROUP_BYTES)
    if int.from_bytes(head, "big") != key_group:
        return True
    return key_group == 0 and _is_one_group(reader, handle, offset)


def _is_one_group(reader: StateReader, handle: KeyGroupsStateHandle, offset: int) -> bool:
    """Whether all that follows is one canonical key group, to its last byte."""
    data = reader.read_range(handle.stream, offset, handle.stream.size_bytes)
    try:
        _, size = decode_key_group(data, compressed=False)
    except CorruptStateError:
        return False
    return size == len(data)
