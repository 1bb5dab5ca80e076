"""The amount of data that a restore will read, computed from the handles alone."""

from collections.abc import Sequence

from statelib.model.choices import Backend
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    log_streams,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.restore.check import expected_statistics
from statelib.restore.live.base import choose_base
from statelib.restore.live.logged import logged_database
from statelib.restore.plan import RestoreSource
from statelib.restore.stored.rocksdb_files import files_to_copy


def bytes_to_read(
    schema: KeyedStateSchema, key_group_range: KeyGroupRange, sources: Sequence[RestoreSource], backend: str
) -> int:
    """Return the bytes that a backend (``heap`` or ``rocksdb``) of this range reads to restore from all sources.

    Only the wanted key groups of a stream are read. RocksDB's files and logs are always read as a whole."""
    taken_over = None
    if backend == Backend.ROCKSDB:
        base = choose_base(schema, key_group_range, sources)
        taken_over = 0 if logged_database(schema, key_group_range, sources) else base.number if base else None
    return sum(_handle_bytes(source.handle, key_group_range, i == taken_over) for i, source in enumerate(sources))


def entries_to_read(key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]) -> int | None:
    """Return the number of entries of all states in the range, or None if a source has no statistics."""
    total = 0
    for source in sources:
        expected = expected_statistics(source, source.handle.key_group_range.intersection(key_group_range))
        if expected is None:
            return None
        total += sum(statistics.total_entries for statistics in expected)
    return total


def _handle_bytes(handle: KeyedStateHandle, key_group_range: KeyGroupRange, in_place: bool) -> int:
    match handle:
        case KeyGroupsSavepointStateHandle() | KeyGroupsStateHandle():
            return _stream_bytes(handle, key_group_range)
        case IncrementalRemoteKeyedStateHandle():
            copied = files_to_copy(handle, with_options=not in_place)
            return handle.meta.size_bytes + sum(stream.size_bytes for _, stream in copied)
        case ChangelogStateBackendHandleImpl():
            below = sum(_handle_bytes(part, key_group_range, in_place) for part in handle.materialized)
            return below + sum(stream.size_bytes for stream in log_streams(handle))


def _stream_bytes(handle: KeyGroupsSavepointStateHandle | KeyGroupsStateHandle, key_group_range: KeyGroupRange) -> int:
    """Return the bytes of the header and of each wanted key group. A key group ends where the next one begins."""
    size_bytes = handle.stream.size_bytes
    used = sorted((offset, handle.key_group_range.start + i) for i, offset in enumerate(handle.offsets) if offset)
    ends = [offset for offset, _ in used[1:]] + [size_bytes]
    header = used[0][0] if used else size_bytes
    groups = zip(used, ends, strict=bool(used))
    return header + sum(end - offset for (offset, group), end in groups if group in key_group_range)
