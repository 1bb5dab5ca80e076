"""The codec of the state handles inside ``_metadata``: one reader per tag byte, one writer per class of handle.

Source: docs/spec/formats.md#stream-handles, #keyed-handles, #handles-of-operator-state, #handles-of-in-flight-buffers,
#file-merging (MetadataV2V3SerializerBase).
"""

import struct
from collections.abc import Callable, Container

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    MaterializedStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    SegmentScope,
    StreamStateHandle,
)
from statelib.model.key_groups import MAX_MAX_PARALLELISM, KeyGroupRange
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

_NULL = 0
_MERGED_OPERATOR = 17
_Files = tuple[tuple[str, StreamStateHandle], ...]


def read_stream_handle(reader: Reader) -> StreamStateHandle | None:
    """Read a stream handle (tags 0, 1, 2, 6, 15 and 16).

    Return None for null (tag 0) and for an empty segment (tag 16), which refers to no file. Raise UnsupportedError
    (``unknown-handle``) for any other tag, and CorruptStateError (``corrupt-metadata``) for a damaged handle.
    """
    tag = _tag(reader, _STREAMS)
    return None if tag == _NULL else _STREAMS[tag](reader)


def write_stream_handle(writer: Writer, handle: StreamStateHandle | None) -> None:
    """Write a stream handle, or null for None; the inverse of :func:`read_stream_handle`."""
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
    elif isinstance(handle, SegmentFileStateHandle):
        writer.u8(15)
        writer.i64(handle.start)
        writer.i64(handle.size_bytes)
        writer.i32(handle.scope)
        writer.utf(handle.path)
        writer.utf(handle.logical_id)
    else:
        writer.u8(6)
        writer.utf(handle.path)
        writer.i64(handle.size_bytes)


def read_materialized_handle(reader: Reader) -> MaterializedStateHandle | None:
    """Read a handle of keyed state without a change log (tags 0, 3, 5, 7, 11 and 12); return None for null (tag 0).

    Raise UnsupportedError (``unknown-handle``) for any other tag, and CorruptStateError (``corrupt-metadata``) for a
    damaged handle.
    """
    tag = _tag(reader, _KEYED)
    return None if tag == _NULL else _KEYED[tag](reader)


def write_materialized_handle(writer: Writer, handle: MaterializedStateHandle | None) -> None:
    """Write a handle of keyed state without a change log, or null for None; the inverse of
    :func:`read_materialized_handle`."""
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
    """Read a handle of operator state (tags 0, 4, and 17, which file merging writes).

    Return None for null (tag 0) and for an empty handle of file merging. Raise UnsupportedError (``unknown-handle``)
    for any other tag, and CorruptStateError (``corrupt-metadata``) for a damaged handle.
    """
    tag = _tag(reader, (4, _MERGED_OPERATOR))
    return None if tag == _NULL else _read_operator_body(reader, merged=tag == _MERGED_OPERATOR)


def write_operator_handle(writer: Writer, handle: OperatorStreamStateHandle | None) -> None:
    """Write a handle of operator state, or null for None, as tags 4 and 0; :func:`read_operator_handle` reads both."""
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


ChannelHandle = tuple[int, StreamStateHandle]
"""The size in bytes of one channel's in-flight buffers, and the stream that holds them together with those of other
channels."""


def read_channel_handle(reader: Reader) -> ChannelHandle:
    """Read a channel-state handle of metadata versions 3 to 5."""
    reader.take(12, "channel")
    reader.take(8 * reader.count(8, "offsets"), "i64 offsets")
    return reader.i64("size"), required_stream(reader)


def read_tagged_channel_handle(reader: Reader) -> ChannelHandle:
    """Read a channel-state handle of metadata version 6 or later: a plain handle (tags 1, 2) or a merged one (3, 4).

    Raise UnsupportedError (``unknown-handle``) for any other tag.
    """
    at, tag = reader.offset, reader.u8("tag")
    if tag in (1, 2):
        return read_channel_handle(reader)
    if tag not in (3, 4):
        raise _unknown_tag(reader, at, tag)
    reader.take(4, "subtask")
    channel_handle = reader.i64("size"), required_stream(reader)
    reader.take(reader.count(name="length"), "offsets")
    return channel_handle


def required_stream(reader: Reader) -> StreamStateHandle:
    """Read a stream handle that must not be null. Raise CorruptStateError (``corrupt-metadata``) if it is."""
    at = reader.offset
    handle = read_stream_handle(reader)
    if handle is None:
        raise CorruptStateError(
            f"{reader.what}: null handle at offset {at}, expected a stream", kind="corrupt-metadata"
        )
    return handle


def _tag(reader: Reader, known_tags: Container[int]) -> int:
    """Read a tag. Raise UnsupportedError (``unknown-handle``) unless it is null or one of ``known_tags``."""
    at, tag = reader.offset, reader.u8("tag")
    if tag == _NULL or tag in known_tags:
        return tag
    raise _unknown_tag(reader, at, tag)


def _unknown_tag(reader: Reader, at: int, tag: int) -> UnsupportedError:
    return UnsupportedError(f"{reader.what}: unknown handle tag {tag} at offset {at}", kind="unknown-handle")


def _read_byte_stream(reader: Reader) -> StreamStateHandle:
    name = reader.utf("name")
    return ByteStreamStateHandle(name, bytes(reader.take(reader.count(name="length"), "content")))


def _read_file(reader: Reader) -> StreamStateHandle:
    size = read_size(reader)
    return FileStateHandle(reader.utf("path"), size)


def _read_relative_file(reader: Reader) -> StreamStateHandle:
    path = reader.utf("path")
    return RelativeFileStateHandle(path, read_size(reader))


def _read_segment(reader: Reader) -> StreamStateHandle:
    start, size = read_size(reader, "start"), read_size(reader)
    at, scope = reader.offset, reader.i32("scope")
    if scope not in (SegmentScope.EXCLUSIVE, SegmentScope.SHARED):
        raise CorruptStateError(
            f"{reader.what}: scope {scope} at offset {at}, expected 0 or 1", kind="corrupt-metadata"
        )
    path = reader.utf("path")
    return SegmentFileStateHandle(path, start, size, SegmentScope(scope), reader.utf("logical id"))


def read_size(reader: Reader, name: str = "size") -> int:
    """Read an i64 that must not be negative. Raise CorruptStateError (``corrupt-metadata``) if it is."""
    at, size = reader.offset, reader.i64(name)
    if size < 0:
        raise CorruptStateError(f"{reader.what}: {name} {size} at offset {at} is negative", kind="corrupt-metadata")
    return size


def _read_key_groups(reader: Reader) -> tuple[KeyGroupRange, tuple[int, ...], StreamStateHandle]:
    at, start = reader.offset, reader.i32("first key group")
    count = reader.count(8, "key groups")
    key_group_range = checked_range(reader, at, start, count)
    offsets = struct.unpack(f">{count}q", reader.take(8 * count, "i64 offsets"))
    return key_group_range, offsets, required_stream(reader)


def checked_range(reader: Reader, at: int, start: int, count: int) -> KeyGroupRange:
    """Return the range of ``count`` key groups from ``start`` on; ``at`` is the offset in ``_metadata`` where it was
    read.

    Raise CorruptStateError (``corrupt-metadata``) if it is not within 0 to 32767.
    """
    if start < 0 or count < 0 or start + count > MAX_MAX_PARALLELISM:
        raise CorruptStateError(
            f"{reader.what}: {count} key groups from {start} at offset {at}, expected them within 0..32767",
            kind="corrupt-metadata",
        )
    return KeyGroupRange(start, start + count - 1)


def _read_savepoint(reader: Reader) -> MaterializedStateHandle:
    return KeyGroupsSavepointStateHandle(*_read_key_groups(reader))


def _read_heap_old(reader: Reader) -> MaterializedStateHandle:
    return KeyGroupsStateHandle(*_read_key_groups(reader))


def _read_heap(reader: Reader) -> MaterializedStateHandle:
    parts = _read_key_groups(reader)
    return KeyGroupsStateHandle(*parts, state_handle_id=reader.utf("state handle id"))


def _write_key_groups(writer: Writer, handle: KeyGroupsSavepointStateHandle | KeyGroupsStateHandle) -> None:
    writer.i32(handle.key_group_range.start)
    writer.i32(len(handle.offsets))
    writer.put(struct.pack(f">{len(handle.offsets)}q", *handle.offsets))
    write_stream_handle(writer, handle.stream)


def _read_incremental_old(reader: Reader) -> MaterializedStateHandle:
    return _incremental(reader, has_size_and_id=False)


def _read_incremental(reader: Reader) -> MaterializedStateHandle:
    return _incremental(reader, has_size_and_id=True)


def _incremental(reader: Reader, has_size_and_id: bool) -> MaterializedStateHandle:
    checkpoint_id, backend_uid = reader.i64("checkpoint id"), reader.utf("backend id")
    at, start = reader.offset, reader.i32("first key group")
    key_group_range = checked_range(reader, at, start, reader.i32("key groups"))
    size = reader.i64("checkpointed size") if has_size_and_id else 0
    with reader.part("meta"):
        meta = required_stream(reader)
    shared, private = _read_files(reader, "shared"), _read_files(reader, "private")
    state_handle_id = reader.utf("state handle id") if has_size_and_id else ""
    return IncrementalRemoteKeyedStateHandle(
        checkpoint_id, backend_uid, key_group_range, size, meta, shared, private, state_handle_id
    )


def _read_files(reader: Reader, scope: str) -> _Files:
    with reader.part(scope):
        return tuple((reader.utf("file"), required_stream(reader)) for _ in range(reader.count(3, "files")))


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


def _read_operator_body(reader: Reader, *, merged: bool) -> OperatorStreamStateHandle | None:
    states = []
    for _ in range(reader.count(7, "states")):
        name, at, mode = reader.utf("state"), reader.offset, reader.i8("distribution mode")
        if mode not in (0, 1, 2):
            raise CorruptStateError(
                f"{reader.what}: distribution mode {mode} at offset {at}, expected 0 to 2", kind="corrupt-metadata"
            )
        count = reader.count(8, "elements")
        states.append((name, mode, struct.unpack(f">{count}q", reader.take(8 * count, "i64 offsets"))))
    if merged and _read_merged_is_empty(reader):
        read_stream_handle(reader)
        return None
    return OperatorStreamStateHandle(tuple(states), required_stream(reader))


def _read_merged_is_empty(reader: Reader) -> bool:
    """Read the fields that only file merging writes, and return the flag that the handle is empty.

    The two directories are skipped: each segment has a path of its own.
    """
    reader.utf("task-owned directory")
    reader.utf("shared directory")
    return reader.bool("empty")


_STREAMS: dict[int, Callable[[Reader], StreamStateHandle | None]] = {
    1: _read_byte_stream,
    2: _read_file,
    6: _read_relative_file,
    15: _read_segment,
    16: lambda _reader: None,
}
_KEYED: dict[int, Callable[[Reader], MaterializedStateHandle]] = {
    3: _read_heap_old,
    5: _read_incremental_old,
    7: _read_savepoint,
    11: _read_incremental,
    12: _read_heap,
}
