"""The file records of a snapshot, as its manifest lists them: one record per physical file."""

from collections import defaultdict
from collections.abc import Iterable

from statelib.model.checkpoint import FileRecord, SegmentRecord
from statelib.model.handles import ByteStreamStateHandle, SegmentFileStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.storage.ports.views import PhysicalFile, WrittenStream


def file_records(
    streams: Iterable[WrittenStream], subtask: int, key_group_range: KeyGroupRange
) -> tuple[FileRecord, ...]:
    """Return one record per physical file of ``streams``. Inline streams have no file and no record.

    The records of streams with a file of their own come first, then those of files that hold several streams.

    Args:
        streams: The streams of the snapshot, after the storage was flushed.
        subtask: The subtask that wrote them.
        key_group_range: The key groups of that subtask.
    """
    own: list[FileRecord] = []
    segments_by_file: dict[PhysicalFile, set[SegmentRecord]] = defaultdict(set)
    for written in streams:
        handle = written.handle
        if isinstance(handle, SegmentFileStateHandle):
            assert written.physical is not None, "known since the storage was flushed"
            segments_by_file[written.physical].add(
                SegmentRecord(handle.start, written.size_bytes, written.crc32c, written.xxh3)
            )
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
        for file, segments in segments_by_file.items()
    ]
    return (*own, *merged)
