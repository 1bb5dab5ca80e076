"""Recognition of the stream behind a KeyGroupsStateHandle that Flink wrote: a native heap stream or a canonical one.

Since Flink 1.13 canonical streams have a handle type of their own. Earlier savepoints of both backends, and RocksDB's
full checkpoints up to 1.15, use the handle type of native heap streams for them. Source:
docs/spec/formats.md#kinds-of-snapshot, #canonical-stream, #heap-stream.
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
from statelib.storage.ports.views import StateReader

_KEY_GROUP_BYTES = 4


def recognised(reader: StateReader, handle: KeyedStateHandle) -> KeyedStateHandle:
    """Return the handle with the type that fits its bytes.

    A handle that cannot be read is returned unchanged, and reading it later raises the error."""
    if isinstance(handle, ChangelogStateBackendHandleImpl):
        return replace(handle, materialized=tuple(_recognised_part(reader, part) for part in handle.materialized))
    return _recognised_part(reader, handle)


def _recognised_part(reader: StateReader, handle: MaterializedStateHandle) -> MaterializedStateHandle:
    if not isinstance(handle, KeyGroupsStateHandle):
        return handle
    try:
        canonical = _is_canonical(reader, handle)
    except StatelibError:
        return handle
    return KeyGroupsSavepointStateHandle(handle.key_group_range, handle.offsets, handle.stream) if canonical else handle


def _is_canonical(reader: StateReader, handle: KeyGroupsStateHandle) -> bool:
    """Return whether the stream is canonical.

    In a heap stream every key group has an offset, and its bytes begin with its number. In a canonical stream the bytes
    of a key group begin with the id of a state and the upper half of the length of its first key, or with the header of
    a compressed stream. These four bytes can equal only the number of key group 0."""
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
    """Return whether the rest of the stream from the offset on is exactly one canonical key group."""
    data = reader.read_range(handle.stream, offset, handle.stream.size_bytes)
    try:
        _, size_bytes = decode_key_group(data, compressed=False)
    except CorruptStateError:
        return False
    return size_bytes == len(data)
