"""Snapshots that were moved: whatever their paths look like, each leads to where it lies now or nowhere."""

import pytest

from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from statelib.model.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandleImpl,
    ChangelogStateHandleStreamImpl,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    SegmentScope,
    StreamStateHandle,
    stream_handles,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.storage.relocation import relocation_of


@pytest.mark.parametrize(
    ("written", "now"),
    [
        ("file:/old/job/shared/sst", "/copy/shared/sst"),
        ("file:///old/job/a", "/copy/a"),
        ("FILE://localhost//old/./job//a", "/copy/a"),
        ("/old/job/a", "/copy/a"),
        ("/old/jobs/a", "/wide/jobs/a"),
        ("/old/job", "/wide/job"),
        ("/older/job/a", "/older/job/a"),
        ("s3a://bucket/p/x", "s3://other/q/x"),
        ("s3://bucket/p/x", "s3://bucket/p/x"),
        ("s3a://bucket-2/p/x", "s3a://bucket-2/p/x"),
        ("hdfs://name:8020/x/y", "/mounted/x/y"),
    ],
)
def test_the_longest_prefix_decides(written: str, now: str) -> None:
    moves = {"file:/old/": "/wide", "file:/old/job": "/copy/", "s3a://bucket/p": "s3://other/q"}
    moves["hdfs://name:8020/"] = "/mounted/"
    assert relocation_of(moves).path(written) == now


@pytest.mark.parametrize("path", ["file:/old/../etc/passwd", "s3a://b/p/../q", "/old/x/../../y"])
def test_a_relocated_path_cannot_leave_the_new_prefix(path: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        relocation_of({"/old": "/new", "s3a://b/p": "/new"}).path(path)
    assert caught.value.kind == "outside-root"


@pytest.mark.parametrize(("old", "new"), [("", "/new"), ("old", "/new"), ("/", "/new"), ("/old", ""), ("/old", "new")])
def test_invalid_prefixes_are_refused(old: str, new: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        relocation_of({old: new})
    assert caught.value.kind == "bad-relocation"


def test_every_handle_is_relocated() -> None:
    files: tuple[StreamStateHandle, ...] = (
        FileStateHandle("file:/old/a", 1),
        SegmentFileStateHandle("/old/b", 0, 1, SegmentScope.SHARED, "id"),
        RelativeFileStateHandle("old", 1),
        ByteStreamStateHandle("/old/inline", b"x"),
    )
    whole = KeyGroupRange(0, 1)
    rocksdb = IncrementalRemoteKeyedStateHandle(
        1, "u", whole, 0, files[0], (("sst", files[1]),), (("c", files[3]),), ""
    )
    log = ChangelogStateHandleStreamImpl(whole, ((files[0], 7),), 1, 1, "id")
    state = OperatorSubtaskState(
        keyed=ChangelogStateBackendHandleImpl(whole, 0, (rocksdb,), (log,), 0, 1),
        operator=OperatorStreamStateHandle((("s", 0, (1, 2)),), files[1]),
        raw_keyed=KeyGroupsStateHandle(whole, (0, -1), files[0]),
        raw_operator=OperatorStreamStateHandle((), files[2]),
    )
    metadata = CheckpointMetadata(1, (OperatorState(bytes(16), 1, 2, ((0, state),), coordinator=files[0]),))
    moved = relocation_of({"/old": "/new"}).metadata(metadata)
    ((_, result),) = moved.operators[0].subtasks
    assert result.keyed
    paths = [getattr(s, "path", "") for s in stream_handles(result.keyed)]
    assert paths == ["/new/a", "/new/b", "", "/new/a"]
    assert result.operator == OperatorStreamStateHandle(
        (("s", 0, (1, 2)),), SegmentFileStateHandle("/new/b", 0, 1, SegmentScope.SHARED, "id")
    )
    assert result.raw_keyed == KeyGroupsStateHandle(whole, (0, -1), FileStateHandle("/new/a", 1))
    assert result.raw_operator == state.raw_operator
    assert moved.operators[0].coordinator == FileStateHandle("/new/a", 1)
    assert relocation_of(None).metadata(metadata) is metadata
