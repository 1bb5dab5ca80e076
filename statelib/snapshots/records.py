"""The files behind a snapshot, as its manifest lists them: each physical file once."""

from collections import defaultdict
from collections.abc import Iterable

from statelib.model.checkpoint import FileRecord, SegmentRecord
from statelib.model.handles import ByteStreamStateHandle, SegmentFileStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.storage.views import PhysicalFile, WrittenStream


def file_records(
    streams: Iterable[WrittenStream], subtask: int, key_group_range: KeyGroupRange
) -> tuple[FileRecord, ...]:
    """Of streams that have files of their own, then of the physical files that hold several; inline ones have none."""
    own: list[FileRecord] = []
    pieces: dict[PhysicalFile, set[SegmentRecord]] = defaultdict(set)
    for written in streams:
        handle = written.handle
        if isinstance(handle, SegmentFileStateHandle):
            assert written.physical is not None, "known since the storage was flushed"
            pieces[written.physical].add(SegmentRecord(handle.start, written.size_bytes, written.crc32c, written.xxh3))
        elif not isinstance(handle, ByteStreamStateHandle):
            own.append(
                FileRecord(handle.path, written.size_bytes, written.crc32c, subtask, key_group_range, written.xxh3)
            )
    merged = [
        FileRecord(
            file.path,
            file.size_bytes,
            file.crc32c,
            subtask,
            key_group_range,
            file.xxh3,
            tuple(sorted(segments, key=lambda segment: segment.start)),
        )
        for file, segments in pieces.items()
    ]
    return (*own, *merged)
