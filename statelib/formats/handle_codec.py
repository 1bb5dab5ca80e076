"""The handles inside ``_metadata``: tag byte to reader, handle class to writer.

Source: flink-formats.md sections 4.3 to 4.6 (MetadataV2V3SerializerBase).
"""

import struct
from collections.abc import Callable, Container

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from statelib.model.key_groups import MAX_MAX_PARALLELISM, KeyGroupRange
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

_NULL = 0
_UNSUPPORTED = {
    8: "changelog state handle (old)",
    9: "in-memory changelog handle",
    10: "changelog file handle (old)",
    13: "changelog file handle",
    14: "changelog state handle",
    15: "file-merging segment handle",
    16: "empty file-merging segment handle",
    17: "file-merging operator state handle",
}
_Files = tuple[tuple[str, StreamStateHandle], ...]


def read_stream_handle(reader: Reader) -> StreamStateHandle | None:
    """Tags 0, 1, 2, 6; UnsupportedError (``unsupported-handle``) names any other that Flink has."""
    tag = _tag(reader, _STREAMS)
    return None if tag == _NULL else _STREAMS[tag](reader)


def write_stream_handle(writer: Writer, handle: StreamStateHandle | None) -> None:
    if handle is None:
        writer.u8(_NULL)
    elif isinstance(handle, ByteStreamStateHandle):
        writer.u8(1)
        writer.utf(handle.name)
        writer.i32(len(handle.data))
        writer.put(handle.data)
    elif isinstance(handle, FileStateHandle):
        writer.u8(2)
        writer.i64(handle.size_bytes)
        writer.utf(handle.path)
    else:
        writer.u8(6)
        writer.utf(handle.path)
        writer.i64(handle.size_bytes)


def read_keyed_handle(reader: Reader) -> KeyedStateHandle | None:
    """Tags 0, 3, 5, 7, 11, 12; UnsupportedError (``unsupported-handle``) names any other that Flink has."""
    tag = _tag(reader, _KEYED)
    return None if tag == _NULL else _KEYED[tag](reader)


def write_keyed_handle(writer: Writer, handle: KeyedStateHandle | None) -> None:
    if handle is None:
        writer.u8(_NULL)
    elif isinstance(handle, KeyGroupsSavepointStateHandle):
        writer.u8(7)
        _write_key_groups(writer, handle)
    elif isinstance(handle, KeyGroupsStateHandle):
        writer.u8(12)
        _write_key_groups(writer, handle)
        writer.utf(handle.state_handle_id)
    else:
        _write_incremental(writer, handle)


def read_operator_handle(reader: Reader) -> OperatorStreamStateHandle | None:
    """Tags 0 and 4; UnsupportedError (``unsupported-handle``) for file merging."""
    tag = _tag(reader, (4,))
    return None if tag == _NULL else _read_operator_body(reader)


def write_operator_handle(writer: Writer, handle: OperatorStreamStateHandle | None) -> None:
    if handle is None:
        writer.u8(_NULL)
        return
    writer.u8(4)
    writer.i32(len(handle.states))
    for name, mode, offsets in handle.states:
        writer.utf(name)
        writer.i8(mode)
        writer.i32(len(offsets))
        writer.put(struct.pack(f">{len(offsets)}q", *offsets))
    write_stream_handle(writer, handle.stream)


def skip_channel_handle(reader: Reader) -> None:
    """A channel-state handle of metadata versions 3 to 5."""
    reader.take(12)
    reader.take(8 * reader.count(8) + 8)
    read_stream_handle(reader)


def skip_tagged_channel_handle(reader: Reader) -> None:
    """A channel-state handle since metadata version 6: plain (tags 1, 2) or merged (3, 4)."""
    at, tag = reader.offset, reader.u8()
    if tag in (1, 2):
        skip_channel_handle(reader)
    elif tag in (3, 4):
        reader.take(12)
        read_stream_handle(reader)
        reader.take(reader.count())
    else:
        raise _unknown_tag(reader, at, tag)


def required_stream(reader: Reader) -> StreamStateHandle:
    """A stream handle where null would make no sense."""
    at = reader.offset
    handle = read_stream_handle(reader)
    if handle is None:
        raise CorruptStateError(
            f"{reader.what}: null handle at offset {at}, expected a stream", kind="corrupt-metadata"
        )
    return handle


def _tag(reader: Reader, known: Container[int]) -> int:
    at, tag = reader.offset, reader.u8()
    if tag == _NULL or tag in known:
        return tag
    raise _unknown_tag(reader, at, tag)


def _unknown_tag(reader: Reader, at: int, tag: int) -> CorruptStateError | UnsupportedError:
    if tag in _UNSUPPORTED:
        return UnsupportedError(
            f"{reader.what}: {_UNSUPPORTED[tag]} (tag {tag}) at offset {at} cannot be read yet",
            kind="unsupported-handle",
            hint="take a canonical savepoint of that job instead",
        )
    return CorruptStateError(f"{reader.what}: unknown handle tag {tag} at offset {at}", kind="corrupt-metadata")


def _read_byte_stream(reader: Reader) -> StreamStateHandle:
    name = reader.utf()
    return ByteStreamStateHandle(name, bytes(reader.take(reader.count())))


def _read_file(reader: Reader) -> StreamStateHandle:
    size = _size(reader)
    return FileStateHandle(reader.utf(), size)


def _read_relative_file(reader: Reader) -> StreamStateHandle:
    path = reader.utf()
    return RelativeFileStateHandle(path, _size(reader))


def _size(reader: Reader) -> int:
    at, size = reader.offset, reader.i64()
    if size < 0:
        raise CorruptStateError(f"{reader.what}: size {size} at offset {at} is negative", kind="corrupt-metadata")
    return size


def _read_key_groups(reader: Reader) -> tuple[KeyGroupRange, tuple[int, ...], StreamStateHandle]:
    at, start = reader.offset, reader.i32()
    count = reader.count(8)
    key_group_range = _key_group_range(reader, at, start, count)
    offsets = struct.unpack(f">{count}q", reader.take(8 * count))
    return key_group_range, offsets, required_stream(reader)


def _key_group_range(reader: Reader, at: int, start: int, count: int) -> KeyGroupRange:
    if start < 0 or count < 0 or start + count > MAX_MAX_PARALLELISM:
        raise CorruptStateError(
            f"{reader.what}: {count} key groups from {start} at offset {at}, expected them within 0..32767",
            kind="corrupt-metadata",
        )
    return KeyGroupRange(start, start + count - 1)


def _read_savepoint(reader: Reader) -> KeyedStateHandle:
    return KeyGroupsSavepointStateHandle(*_read_key_groups(reader))


def _read_heap_old(reader: Reader) -> KeyedStateHandle:
    return KeyGroupsStateHandle(*_read_key_groups(reader))


def _read_heap(reader: Reader) -> KeyedStateHandle:
    parts = _read_key_groups(reader)
    return KeyGroupsStateHandle(*parts, state_handle_id=reader.utf())


def _write_key_groups(writer: Writer, handle: KeyGroupsSavepointStateHandle | KeyGroupsStateHandle) -> None:
    writer.i32(handle.key_group_range.start)
    writer.i32(len(handle.offsets))
    writer.put(struct.pack(f">{len(handle.offsets)}q", *handle.offsets))
    write_stream_handle(writer, handle.stream)


def _read_incremental_old(reader: Reader) -> KeyedStateHandle:
    return _incremental(reader, has_size_and_id=False)


def _read_incremental(reader: Reader) -> KeyedStateHandle:
    return _incremental(reader, has_size_and_id=True)


def _incremental(reader: Reader, has_size_and_id: bool) -> KeyedStateHandle:
    checkpoint_id, backend_uid = reader.i64(), reader.utf()
    at, start = reader.offset, reader.i32()
    key_group_range = _key_group_range(reader, at, start, reader.i32())
    size = reader.i64() if has_size_and_id else 0
    meta, shared, private = required_stream(reader), _read_files(reader), _read_files(reader)
    state_handle_id = reader.utf() if has_size_and_id else ""
    return IncrementalRemoteKeyedStateHandle(
        checkpoint_id, backend_uid, key_group_range, size, meta, shared, private, state_handle_id
    )


def _read_files(reader: Reader) -> _Files:
    return tuple((reader.utf(), required_stream(reader)) for _ in range(reader.count(3)))


def _write_incremental(writer: Writer, handle: IncrementalRemoteKeyedStateHandle) -> None:
    writer.u8(11)
    writer.i64(handle.checkpoint_id)
    writer.utf(handle.backend_uid)
    writer.i32(handle.key_group_range.start)
    writer.i32(len(handle.key_group_range))
    writer.i64(handle.checkpointed_size_bytes)
    write_stream_handle(writer, handle.meta)
    for files in (handle.shared, handle.private):
        writer.i32(len(files))
        for name, stream in files:
            writer.utf(name)
            write_stream_handle(writer, stream)
    writer.utf(handle.state_handle_id)


def _read_operator_body(reader: Reader) -> OperatorStreamStateHandle:
    states = []
    for _ in range(reader.count(7)):
        name, at, mode = reader.utf(), reader.offset, reader.i8()
        if mode not in (0, 1, 2):
            raise CorruptStateError(
                f"{reader.what}: distribution mode {mode} at offset {at}, expected 0 to 2", kind="corrupt-metadata"
            )
        count = reader.count(8)
        states.append((name, mode, struct.unpack(f">{count}q", reader.take(8 * count))))
    return OperatorStreamStateHandle(tuple(states), required_stream(reader))


_STREAMS: dict[int, Callable[[Reader], StreamStateHandle]] = {
    1: _read_byte_stream,
    2: _read_file,
    6: _read_relative_file,
}
_KEYED: dict[int, Callable[[Reader], KeyedStateHandle]] = {
    3: _read_heap_old,
    5: _read_incremental_old,
    7: _read_savepoint,
    11: _read_incremental,
    12: _read_heap,
}
