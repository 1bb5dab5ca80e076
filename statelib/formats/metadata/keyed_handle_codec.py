"""The codec of the keyed state handles inside ``_metadata``: materialised state, alone or with a change log on top.

Source: docs/spec/formats.md#keyed-handles, tags 8 to 10, 13 and 14 (ChangelogStateBackendHandleImpl).
"""

from statelib.errors import CorruptStateError
from statelib.formats.metadata.handle_codec import (
    checked_range,
    read_materialized_handle,
    read_size,
    required_stream,
    write_materialized_handle,
    write_stream_handle,
)
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    ChangelogStateHandle,
    ChangelogStateHandleStreamImpl,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
    MaterializedStateHandle,
    StreamStateHandle,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

_OLD, _NEW = 8, 14
_IN_MEMORY, _STREAM_OLD, _STREAM = 9, 10, 13


def read_keyed_handle(reader: Reader) -> KeyedStateHandle | None:
    """Read a handle of keyed state: one with a change log (tags 8, 14), or one that :func:`read_materialized_handle`
    reads.

    Return None for null (tag 0). Raise UnsupportedError (``unknown-handle``) for any other tag, and CorruptStateError
    (``corrupt-metadata``) for a damaged handle.
    """
    tag = reader.peek()
    if tag not in (_OLD, _NEW):
        return read_materialized_handle(reader)
    reader.u8("tag")
    key_groups, size_bytes = _read_range(reader), reader.i64("checkpointed size")
    with reader.part("materialized"):
        materialized = tuple(_read_materialized(reader) for _ in range(reader.count(name="handles")))
    with reader.part("log"):
        log = tuple(_read_log(reader) for _ in range(reader.count(name="parts")))
    materialization_id = reader.i64("materialization id")
    checkpoint_id = reader.i64("checkpoint id") if tag == _NEW else materialization_id
    return ChangelogStateBackendHandleImpl(
        key_groups, size_bytes, materialized, log, materialization_id, checkpoint_id, reader.utf("state handle id")
    )


def write_keyed_handle(writer: Writer, handle: KeyedStateHandle | None) -> None:
    """Write a handle of keyed state, or null for None; the inverse of :func:`read_keyed_handle`."""
    if not isinstance(handle, ChangelogStateBackendHandleImpl):
        write_materialized_handle(writer, handle)
        return
    writer.u8(_NEW)
    _write_range(writer, handle.key_group_range)
    writer.i64(handle.checkpointed_size_bytes)
    writer.i32(len(handle.materialized))
    for materialized in handle.materialized:
        write_materialized_handle(writer, materialized)
    writer.i32(len(handle.log))
    for part in handle.log:
        _write_log(writer, part)
    writer.i64(handle.materialization_id)
    writer.i64(handle.checkpoint_id)
    writer.utf(handle.state_handle_id)


def _read_materialized(reader: Reader) -> MaterializedStateHandle:
    at = reader.offset
    handle = read_materialized_handle(reader)
    if handle is None:
        raise CorruptStateError(
            f"{reader.what}: null handle at offset {at}, expected materialised state", kind="corrupt-metadata"
        )
    return handle


def _read_log(reader: Reader) -> ChangelogStateHandle:
    at, tag = reader.offset, reader.u8("tag")
    if tag == _IN_MEMORY:
        return _read_log_in_memory(reader)
    if tag not in (_STREAM_OLD, _STREAM):
        raise CorruptStateError(
            f"{reader.what}: handle tag {tag} at offset {at}, expected a part of a change log", kind="corrupt-metadata"
        )
    parts = _read_log_streams(reader)
    return ChangelogStateHandleStreamImpl(*parts, *((reader.utf("storage id"),) if tag == _STREAM else ()))


def _read_log_streams(
    reader: Reader,
) -> tuple[KeyGroupRange, tuple[tuple[StreamStateHandle, int], ...], int, int, str]:
    key_groups = _read_range(reader)
    segments = []
    for _ in range(reader.count(9, "segments")):
        offset = read_size(reader, "offset")
        segments.append((required_stream(reader), offset))
    sizes = reader.i64("size"), reader.i64("checkpointed size")
    return key_groups, tuple(segments), *sizes, reader.utf("state handle id")


def _read_log_in_memory(reader: Reader) -> ChangelogStateHandle:
    key_groups, start, end = _read_range(reader), reader.i64("from"), reader.i64("to")
    changes = []
    for _ in range(reader.count(8, "changes")):
        key_group = reader.i32("key group")
        changes.append((key_group, bytes(reader.take(reader.count(name="length"), "change"))))
    return InMemoryChangelogStateHandle(key_groups, start, end, tuple(changes), reader.utf("state handle id"))


def _write_log(writer: Writer, part: ChangelogStateHandle) -> None:
    if isinstance(part, InMemoryChangelogStateHandle):
        writer.u8(_IN_MEMORY)
        _write_range(writer, part.key_group_range)
        writer.i64(part.start)
        writer.i64(part.end)
        writer.i32(len(part.changes))
        for key_group, change in part.changes:
            writer.i32(key_group)
            writer.i32(len(change))
            writer.put(change)
        writer.utf(part.state_handle_id)
        return
    writer.u8(_STREAM)
    _write_range(writer, part.key_group_range)
    writer.i32(len(part.segments))
    for stream, offset in part.segments:
        writer.i64(offset)
        write_stream_handle(writer, stream)
    writer.i64(part.size_bytes)
    writer.i64(part.checkpointed_size_bytes)
    writer.utf(part.state_handle_id)
    writer.utf(part.storage_id)


def _read_range(reader: Reader) -> KeyGroupRange:
    at, start = reader.offset, reader.i32("first key group")
    return checked_range(reader, at, start, reader.i32("key groups"))


def _write_range(writer: Writer, key_groups: KeyGroupRange) -> None:
    writer.i32(key_groups.start)
    writer.i32(len(key_groups))
