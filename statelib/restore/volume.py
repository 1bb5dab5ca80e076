"""How much a restore reads: known from the handles, before anything is read."""

from collections.abc import Sequence

from statelib.model.handles import (
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    stream_handles,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.restore.check import expected_statistics
from statelib.restore.keyed import restored_in_place
from statelib.restore.plan import RestoreSource
from statelib.restore.rocksdb_files import files_to_copy


def bytes_to_read(key_group_range: KeyGroupRange, sources: Sequence[RestoreSource], backend: str) -> int:
    """Bytes that a backend (``heap`` or ``rocksdb``) of this range reads from storage to restore from all sources.

    A stream is read key group by key group; of RocksDB's files every one is copied whole,
    whichever of its key groups are wanted."""
    in_place = backend == "rocksdb" and restored_in_place(key_group_range, sources) is not None
    return sum(_of_source(source, key_group_range, in_place) for source in sources)


def entries_to_read(key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]) -> int | None:
    """Entries of all states in the range; None where a source has no statistics."""
    total = 0
    for source in sources:
        expected = expected_statistics(source, source.handle.key_group_range.intersection(key_group_range))
        if expected is None:
            return None
        total += sum(statistics.total_entries for statistics in expected)
    return total


def _of_source(source: RestoreSource, key_group_range: KeyGroupRange, in_place: bool) -> int:
    match source.handle:
        case KeyGroupsSavepointStateHandle() | KeyGroupsStateHandle() as handle:
            return _stream(handle, key_group_range)
        case IncrementalRemoteKeyedStateHandle() as handle:
            copied = files_to_copy(handle, with_options=not in_place)
            return handle.meta.size_bytes + sum(stream.size_bytes for _, stream in copied)
        case other:
            return sum(stream.size_bytes for stream in stream_handles(other))


def _stream(handle: KeyGroupsSavepointStateHandle | KeyGroupsStateHandle, key_group_range: KeyGroupRange) -> int:
    """The header, and each wanted key group up to where the next one begins."""
    size_bytes = handle.stream.size_bytes
    used = sorted((offset, handle.key_group_range.start + i) for i, offset in enumerate(handle.offsets) if offset)
    ends = [offset for offset, _ in used[1:]] + [size_bytes]
    header = used[0][0] if used else size_bytes
    groups = zip(used, ends, strict=bool(used))
    return header + sum(end - offset for (offset, group), end in groups if group in key_group_range)
