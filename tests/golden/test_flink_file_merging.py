"""File-merged checkpoints of Flink: segments of shared physical files contain exactly the state that the jobs
recorded."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.formats.metadata.metadata_file import decode_metadata, encode_metadata
from statelib.model.handles import SegmentFileStateHandle, SegmentScope, StreamStateHandle, stream_handles
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import Checkpoint
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.wire.reader import Reader
from tests.golden.flink_fixtures import KEYED_KINDS, ROOT, Json
from tests.golden.flink_fixtures import opened as newest

FIXTURES = {
    "1.20.5/hashmap-filemerging": 2,
    "1.20.5/rocksdb-filemerging-incremental": 20,
    "2.3.0/rocksdb-filemerging-incremental": 20,
}
OPERATOR_STATE = "1.20.5/hashmap-filemerging"


def opened(fixture: str) -> Checkpoint:
    result = newest(ROOT / fixture)
    return replace(result, selected=result.keyed_operator().operator_id)


def segments(checkpoint: Checkpoint) -> list[SegmentFileStateHandle]:
    states = [state for operator in checkpoint.operators for _, state in operator.subtasks]
    streams: list[StreamStateHandle] = []
    for state in states:
        streams += [s for handle in (state.keyed, state.operator) if handle for s in stream_handles(handle)]
    assert all(isinstance(stream, SegmentFileStateHandle) for stream in streams)
    return [stream for stream in streams if isinstance(stream, SegmentFileStateHandle)]


def normal(line: Json) -> str:
    """Return the line without the operator (metadata of version 4 have only its id), and with floats by their bits
    alone."""

    def bits_only(value: Json) -> Json:
        return {k: v for k, v in value.items() if k != "v"} if "bits" in value else value

    plain = json.dumps({k: v for k, v in line.items() if k != "op"}, sort_keys=True)
    return json.dumps(json.loads(plain, object_hook=bits_only), sort_keys=True)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_every_entry_equals_that_of_the_job(fixture: str, tmp_path: Path) -> None:
    lines = map(json.loads, (ROOT / fixture / "truth.jsonl").read_text(encoding="utf-8").splitlines())
    expected = sorted(normal(line) for line in lines if line["kind"] in KEYED_KINDS)
    assert len(expected) > 300
    exported = export_lines(opened(fixture), None, scratch=str(tmp_path))
    assert sorted(normal(json.loads(line)) for line in exported) == expected


@pytest.mark.parametrize("fixture", FIXTURES)
def test_physical_files_contain_several_segments(fixture: str) -> None:
    file_segments = segments(opened(fixture))
    assert len({s.path for s in file_segments}) < len(file_segments)
    assert len(file_segments) >= FIXTURES[fixture]
    assert {s.scope for s in file_segments} >= {SegmentScope.EXCLUSIVE}
    assert any(s.start for s in file_segments)


def test_operator_state_is_also_stored_in_segments() -> None:
    checkpoint = opened(OPERATOR_STATE)
    states = [s.operator for o in checkpoint.operators for _, s in o.subtasks if s.operator]
    assert {name for state in states for name, _, _ in state.states} >= {"split", "splitPojo", "union"}
    for state in states:
        data = checkpoint.reader().read(state.stream)
        assert len(data) == state.stream.size_bytes
        assert Reader(data, "operator state").i32() in range(2, 7), "the header's version"


def test_an_empty_segment_is_no_state() -> None:
    (sink,) = [o for o in opened("2.3.0/rocksdb-filemerging-incremental").operators if o.uid == "sink-opstate"]
    assert [state.operator for _, state in sink.subtasks] == [None, None]


@pytest.mark.parametrize("fixture", FIXTURES)
def test_handles_are_written_back_unchanged(fixture: str) -> None:
    checkpoint = opened(fixture)
    again, _ = decode_metadata(encode_metadata(checkpoint.metadata))
    for ours, theirs in zip(again.operators, checkpoint.operators, strict=True):
        assert ours.subtasks == theirs.subtasks


def test_segments_outside_of_the_directory_are_refused() -> None:
    """Files outside the directory are not read only because a handle names them."""
    checkpoint = opened(OPERATOR_STATE)
    segment = segments(checkpoint)[0]
    with pytest.raises(InvalidRequestError) as caught:
        DirectoryReader(checkpoint.directory).read(segment)
    assert caught.value.kind == "task-owned"
    assert "taskowned" in caught.value.message


def test_a_segment_beyond_the_end_of_its_file_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "physical"
    path.write_bytes(b"0123456789")
    reader = DirectoryReader(str(tmp_path))
    whole = SegmentFileStateHandle(f"file://{path}", 4, 6, SegmentScope.SHARED, "id")
    assert bytes(reader.read(whole)) == b"456789"
    assert bytes(reader.read_range(whole, 1, 3)) == b"56"
    for start, size in ((5, 6), (11, 0), (0, 11)):
        with pytest.raises(CorruptStateError) as caught:
            reader.read(SegmentFileStateHandle(f"file://{path}", start, size, SegmentScope.SHARED, "id"))
        assert caught.value.kind == "size-mismatch"
