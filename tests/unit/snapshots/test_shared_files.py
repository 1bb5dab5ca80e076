"""The snapshot that is the base of the next one, and those of its files that may be shared."""

from dataclasses import replace

from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    SegmentScope,
    checksum_key,
)
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.snapshots.uploads.previous import NO_PREVIOUS, PreviousSnapshot, SharedFiles, previous_snapshot
from statelib.storage.ports.views import PhysicalFile, WrittenStream
from statelib.wire.checksum import content_hash


def snapshot(number: int) -> PreviousSnapshot:
    stream = WrittenStream(FileStateHandle(f"file:///shared/{number}", 1), 1, number)
    return PreviousSnapshot(CheckpointId(number), {f"{number:06}.sst": stream})


def taken(*numbers: int, restored: PreviousSnapshot = NO_PREVIOUS) -> SharedFiles:
    files = SharedFiles(restored)
    for number in numbers:
        files.take(snapshot(number))
    return files


def test_without_a_completed_snapshot_there_is_no_base() -> None:
    assert taken(1, 2).base() is NO_PREVIOUS
    assert dict(NO_PREVIOUS.files) == {}


def test_the_base_is_the_last_completed_snapshot() -> None:
    files = taken(1, 2, 3)
    files.complete(CheckpointId(2))
    assert files.base() == snapshot(2)
    files.take(snapshot(4))
    assert files.base() == snapshot(2)


def test_a_late_completion_of_an_older_snapshot_changes_nothing() -> None:
    files = taken(1, 2)
    files.complete(CheckpointId(2))
    files.complete(CheckpointId(1))
    files.complete(CheckpointId(2))
    assert files.base() == snapshot(2)


def test_a_completed_savepoint_changes_nothing() -> None:
    files = taken(1, 3)
    files.complete(CheckpointId(1))
    files.complete(CheckpointId(2))
    assert files.base() == snapshot(1)
    files.complete(CheckpointId(3))
    assert files.base() == snapshot(3), "the savepoint's id did not move the mark either"


def test_an_aborted_snapshot_never_becomes_the_base() -> None:
    files = taken(1, 2)
    files.complete(CheckpointId(1))
    files.abort(CheckpointId(2))
    files.complete(CheckpointId(2))
    assert files.base() == snapshot(1)
    files.abort(CheckpointId(1))
    assert files.base() is NO_PREVIOUS


def test_the_restored_snapshot_is_a_base_until_a_newer_one_completes() -> None:
    files = taken(8, 9, restored=snapshot(7))
    assert files.base() == snapshot(7)
    files.abort(CheckpointId(8))
    assert files.base() == snapshot(7)
    files.complete(CheckpointId(9))
    assert files.base() == snapshot(9)


def test_only_shared_files_with_a_recorded_checksum_can_be_shared_again() -> None:
    absolute, relative = FileStateHandle("file:///s/a", 5), RelativeFileStateHandle("b", 6)
    unknown, inline = FileStateHandle("file:///s/c", 7), ByteStreamStateHandle("d", b"bytes")
    handle = IncrementalRemoteKeyedStateHandle(
        checkpoint_id=4,
        backend_uid="u",
        key_group_range=KeyGroupRange(0, 1),
        checkpointed_size_bytes=0,
        meta=inline,
        shared=(("1.sst", absolute), ("2.sst", relative), ("3.sst", unknown), ("4.sst", inline)),
        private=(("5.sst", FileStateHandle("file:///s/e", 8)),),
        state_handle_id="",
    )
    checksums = {"file:///s/a": (5, 11, 7), "b": (6, 12, None), "file:///s/e": (8, 13, None)}
    recorded_checksums = content_hash(b"bytes")
    expected = {
        "1.sst": WrittenStream(absolute, 5, 11, 7),
        "4.sst": WrittenStream(inline, 5, recorded_checksums.crc32c, recorded_checksums.xxh3),
    }
    assert previous_snapshot(handle, checksums) == PreviousSnapshot(CheckpointId(4), expected)


def test_a_segment_is_identified_by_its_content_and_its_file() -> None:
    shared = SegmentFileStateHandle("file:///s/p", 10, 5, SegmentScope.SHARED, "a")
    other = replace(shared, start=20, logical_id="b")
    exclusive = replace(shared, scope=SegmentScope.EXCLUSIVE)
    handle = IncrementalRemoteKeyedStateHandle(
        checkpoint_id=4,
        backend_uid="u",
        key_group_range=KeyGroupRange(0, 1),
        checkpointed_size_bytes=0,
        meta=ByteStreamStateHandle("m", b""),
        shared=(("1.sst", shared), ("2.sst", other), ("3.sst", exclusive)),
        private=(),
        state_handle_id="",
    )
    piece = WrittenStream(shared, 5, 11, 7, PhysicalFile("file:///s/p", 30, 12, 8))
    identities = {"file:///s/p": (30, 12, 8), checksum_key(shared): (5, 11, 7)}
    assert previous_snapshot(handle, identities).files == {"1.sst": piece}
    del identities["file:///s/p"]
    assert previous_snapshot(handle, identities).files == {}
