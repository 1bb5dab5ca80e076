"""Merged files: how many there are, what is in them, and what is left of streams that fail."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError
from statelib.model.handles import (
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    SegmentScope,
    checksum_key,
)
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.snapshots.uploads.records import file_records
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from statelib.storage.ports.views import (
    DEFAULT_REFERENCE,
    CheckpointedStateScope,
    CheckpointStreamFactory,
    FileMergingSettings,
    PhysicalFile,
    WrittenStream,
)
from statelib.storage.wrappers.merging import MAX_MERGED_BYTES, dense
from statelib.testing.suites.storage_case import content
from statelib.wire.checksum import content_hash, crc32c

ATTEMPT = AttemptId("0" * 32)
ID = CheckpointId(1)
EXCLUSIVE, SHARED = CheckpointedStateScope.EXCLUSIVE, CheckpointedStateScope.SHARED
KEY_GROUPS = KeyGroupRange(0, 127)


@pytest.fixture
def storage(tmp_path: Path) -> FileSystemCheckpointStorage:
    storage = FileSystemCheckpointStorage(str(tmp_path), PipelineName("flights"), 0)
    storage.initialize_location(ID)
    return storage


def streams_of(storage: FileSystemCheckpointStorage, settings: FileMergingSettings) -> CheckpointStreamFactory:
    worker = storage.to_file_merging_storage(settings)
    return worker.resolve_checkpoint_storage_location(ID, DEFAULT_REFERENCE, ATTEMPT, 0)


@pytest.fixture
def streams(storage: FileSystemCheckpointStorage) -> CheckpointStreamFactory:
    return streams_of(storage, FileMergingSettings())


def put(streams: CheckpointStreamFactory, data: bytes, scope: CheckpointedStateScope = EXCLUSIVE) -> WrittenStream:
    stream = streams.create_stream(scope)
    stream.write(data)
    return stream.close_and_get_handle()


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def segment(written: WrittenStream) -> SegmentFileStateHandle:
    assert isinstance(written.handle, SegmentFileStateHandle)
    return written.handle


def test_a_thousand_tiny_streams_are_merged_into_two_files(streams: CheckpointStreamFactory, tmp_path: Path) -> None:
    tiny = [content(100 + number % 50) for number in range(1000)]
    with ThreadPoolExecutor(4) as threads:
        scopes = (EXCLUSIVE, SHARED) * 500
        written = list(threads.map(lambda data, scope: put(streams, data, scope), tiny, scopes))
    physical = streams.flush()
    assert [path.parent.name for path in files(tmp_path)] == ["chk-1", "shared"]
    assert {f"file://{path}": path.stat().st_size for path in files(tmp_path)} == {
        path: file.size_bytes for path, file in physical.items()
    }
    assert sum(file.size_bytes for file in physical.values()) == sum(map(len, tiny)), "no byte is lost between them"
    for path in files(tmp_path):
        assert crc32c(path.read_bytes()) == physical[f"file://{path}"].crc32c
    reader = DirectoryReader(f"file://{tmp_path}/flights")
    assert [bytes(reader.read(each.handle)) for each in written] == tiny
    assert [each.crc32c for each in written] == list(map(crc32c, tiny))
    assert {segment(each).scope for each in written[::2]} == {SegmentScope.EXCLUSIVE}
    assert {segment(each).scope for each in written[1::2]} == {SegmentScope.SHARED}


def test_a_full_physical_file_is_followed_by_a_new_one(storage: FileSystemCheckpointStorage, tmp_path: Path) -> None:
    streams = streams_of(storage, FileMergingSettings(max_file_size_bytes=1000))
    written = [put(streams, content(size)) for size in (400, 600, 1, 999, 1000, 1001, 5000, 10)]
    starts = [handle.start for handle in (each.handle for each in written) if hasattr(handle, "start")]
    assert starts == [0, 400, 0, 1, 0, 0]
    assert [type(each.handle) for each in written[5:7]] == [RelativeFileStateHandle] * 2, "too large to be merged"
    streams.flush()
    assert sorted(path.stat().st_size for path in files(tmp_path)) == [10, 1000, 1000, 1000, 1001, 5000]


def test_a_large_stream_has_a_file_of_its_own(streams: CheckpointStreamFactory, tmp_path: Path) -> None:
    data = content(MAX_MERGED_BYTES + 1)
    large, small = put(streams, data, SHARED), put(streams, data[:-1], SHARED)
    assert isinstance(large.handle, FileStateHandle)
    assert segment(small).size_bytes == MAX_MERGED_BYTES
    streams.flush()
    reader = DirectoryReader(f"file://{tmp_path}/flights")
    assert bytes(reader.read(large.handle)) == data
    assert bytes(reader.read(small.handle)) == data[:-1]


def test_dropped_streams_leave_no_byte(streams: CheckpointStreamFactory, tmp_path: Path) -> None:
    other_stream = put(streams, content(100))
    dropped = streams.create_stream(EXCLUSIVE)
    dropped.write(content(300))
    dropped.close()
    streams.flush()
    (path,) = files(tmp_path)
    assert path.read_bytes() == content(100)
    assert segment(other_stream).path == f"file://{path}"


def test_a_failed_attempt_removes_its_physical_files(streams: CheckpointStreamFactory, tmp_path: Path) -> None:
    written = [put(streams, content(100), scope) for scope in (SHARED, EXCLUSIVE) * 3]
    for each in written[:-2]:
        streams.discard(each.handle)
    assert len(files(tmp_path)) == 2, "a file goes with its last segment"
    streams.flush()
    for each in written:
        streams.discard(each.handle)
    assert files(tmp_path) == []
    assert streams.flush() == {}
    again = put(streams, content(5))
    assert streams.flush()[segment(again).path].size_bytes == 5


def test_segments_of_another_writer_are_not_discarded(streams: CheckpointStreamFactory, tmp_path: Path) -> None:
    mine = segment(put(streams, content(10)))
    streams.flush()
    for path in (mine.path.replace("-0-", "-1-"), "file:///etc/passwd"):
        with pytest.raises(InvalidRequestError) as caught:
            streams.discard(SegmentFileStateHandle(path, 0, 10, SegmentScope.SHARED, ""))
        assert caught.value.kind == "foreign-file"
    assert len(files(tmp_path)) == 1


def test_names_of_merged_files_contain_the_attempt(streams: CheckpointStreamFactory, tmp_path: Path) -> None:
    """This also holds for files that a crash before the flush leaves."""
    put(streams, content(10))
    put(streams, content(10), SHARED)
    assert len(files(tmp_path)) == 2
    assert all(path.name.startswith(f"{ATTEMPT}-0-") for path in files(tmp_path))


def test_a_name_that_is_taken_is_never_overwritten(
    storage: FileSystemCheckpointStorage, streams: CheckpointStreamFactory, tmp_path: Path
) -> None:
    put(streams, content(10))
    streams.flush()
    with pytest.raises(ConflictError):
        put(streams_of(storage, FileMergingSettings()), content(20))
    (path,) = files(tmp_path)
    assert path.read_bytes() == content(10)


def test_a_savepoint_is_not_merged(storage: FileSystemCheckpointStorage) -> None:
    worker = storage.to_file_merging_storage(FileMergingSettings())
    reference = storage.initialize_savepoint_location(ID, None)
    streams = worker.resolve_checkpoint_storage_location(ID, reference, ATTEMPT, 0)
    assert [type(put(streams, content(10)).handle) for _ in range(2)] == [RelativeFileStateHandle] * 2


def test_the_records_list_each_physical_file_once_and_verify_each_segment(
    streams: CheckpointStreamFactory, tmp_path: Path
) -> None:
    written = [put(streams, content(size), SHARED) for size in (100, 200, 300)]
    physical = streams.flush()
    settled = [replace(w, physical=physical[segment(w).path]) for w in written[::2]]
    (record,) = file_records(settled, 0, KEY_GROUPS)
    assert (record.size_bytes, [s.start for s in record.segments]) == (600, [0, 300])
    (path,) = files(tmp_path)
    whole = content_hash(path.read_bytes())
    assert (record.crc32c, record.xxh3) == (whole.crc32c, whole.xxh3)
    for piece, size in zip(record.segments, (100, 300), strict=True):
        result = content_hash(content(size))
        assert (piece.crc32c, piece.xxh3) == (result.crc32c, result.xxh3)
    reader = DirectoryReader(f"file://{tmp_path}/flights", record.checksums())
    damaged = bytearray(path.read_bytes())
    damaged[450] ^= 1
    path.write_bytes(damaged)
    assert bytes(reader.read(written[0].handle)) == content(100)
    for read in (lambda: reader.read(written[2].handle), lambda: reader.copy_to(written[2].handle, f"{tmp_path}/x")):
        with pytest.raises(CorruptStateError) as caught:
            read()
        assert caught.value.kind == "checksum-mismatch"
    assert not (tmp_path / "x").exists()
    path.write_bytes(damaged + b"more")
    with pytest.raises(CorruptStateError) as caught:
        reader.read(written[0].handle)
    assert caught.value.kind == "size-mismatch"


def test_segments_of_one_file_have_different_checksum_keys() -> None:
    handles = [SegmentFileStateHandle("file:///x", *at, SegmentScope.SHARED, "") for at in ((1, 2), (12, 2), (1, 22))]
    assert len({*map(checksum_key, handles), checksum_key(FileStateHandle("file:///x", 2))}) == 4


def pieces(size_bytes: int, *living: int) -> list[WrittenStream]:
    """Return segments of a file of this size."""
    file, start, result = PhysicalFile("file:///p", size_bytes, 0), 0, []
    for size in living:
        handle = SegmentFileStateHandle(file.path, start, size, SegmentScope.SHARED, str(start))
        result.append(WrittenStream(handle, size, 0, physical=file))
        start += size
    return result


@pytest.mark.parametrize(("living", "limit", "is_kept"), [((30, 20), 2.0, 2), ((30, 19), 2.0, 0), ((100,), 1.0, 1)])
def test_a_file_is_reused_as_long_as_enough_of_it_is_needed(
    living: tuple[int, ...], limit: float, is_kept: int
) -> None:
    whole = WrittenStream(FileStateHandle("file:///whole", 7), 7, 0)
    again = dense([*pieces(100, *living), whole], limit)
    assert whole.handle in again
    assert len(again) == is_kept + 1


def test_a_storage_that_does_not_merge_refers_to_whole_files_only(storage: FileSystemCheckpointStorage) -> None:
    streams = storage.resolve_checkpoint_storage_location(ID, DEFAULT_REFERENCE, ATTEMPT, 0)
    whole = WrittenStream(FileStateHandle("file:///whole", 7), 7, 0)
    assert streams.reusable([*pieces(100, 100), whole]) == {whole.handle}


@pytest.mark.parametrize(
    "settings", [FileMergingSettings(0), FileMergingSettings(10, 0.99), FileMergingSettings(10, float("nan"))]
)
def test_senseless_settings_are_refused(storage: FileSystemCheckpointStorage, settings: FileMergingSettings) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        streams_of(storage, settings)
    assert caught.value.kind == "bad-file-merging"


def test_cancelling_one_stream_does_not_affect_the_others(streams: CheckpointStreamFactory, tmp_path: Path) -> None:
    doomed = streams.create_stream(EXCLUSIVE)
    doomed.write(content(1000))
    canceller = threading.Thread(target=doomed.close)
    canceller.start()
    other_stream = put(streams, content(77))
    canceller.join()
    streams.flush()
    assert bytes(DirectoryReader(f"file://{tmp_path}/flights").read(other_stream.handle)) == content(77)
    assert [path.stat().st_size for path in files(tmp_path)] == [77]
