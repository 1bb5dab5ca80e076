"""`_metadata` of real Flink snapshots equals what Flink's own classes read from it."""

import dataclasses
import json
import re

import pytest

from statelib.errors import CorruptStateError
from statelib.formats.manifest.trailer import read_checkpoint_file
from statelib.formats.metadata.metadata_file import decode_metadata, encode_metadata
from statelib.formats.metadata.operator_id import operator_id
from statelib.formats.operator_state import decode_operator_header
from statelib.model.checkpoint import OperatorState, OperatorSubtaskState
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupsSavepointStateHandle,
    OperatorStreamStateHandle,
    StreamStateHandle,
)
from statelib.model.types import BYTES
from tests.golden.flink_fixtures import FIXTURES, Json, Snapshot, load

REPORTED_OFFSETS = 302
"""The number of offsets that Flink's recorded report contains of a longer array."""
MODES = ("SPLIT_DISTRIBUTE", "UNION", "BROADCAST")


@pytest.fixture(params=FIXTURES)
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    return load(request.param)


def test_all_fixtures_exist() -> None:
    assert len(FIXTURES) == 16


def test_metadata_equal_those_that_flink_reports(snapshot: Snapshot) -> None:
    metadata, end, data = snapshot.metadata()
    facts = snapshot.facts
    assert (metadata.version, metadata.checkpoint_id) == (facts["version"], facts["checkpointId"])
    assert end == len(data) == facts["bytes"]
    assert [describe(operator) for operator in metadata.operators] == [expected(o) for o in facts["operators"]]


def describe(operator: OperatorState) -> Json:
    return {
        "id": operator.operator_id.hex(),
        "parallelism": (operator.parallelism, operator.max_parallelism),
        "names": (operator.name, operator.uid),
        "coordinator": operator.coordinator.data.hex()
        if isinstance(operator.coordinator, ByteStreamStateHandle)
        else operator.coordinator,
        "subtasks": {index: describe_subtask(state) for index, state in operator.subtasks},
    }


def describe_subtask(state: OperatorSubtaskState) -> Json:
    assert (state.raw_keyed, state.raw_operator, state.finished, state.channel_handles) == (None, None, False, 0)
    return {"keyed": describe_keyed(state), "operator": describe_operator_state(state.operator)}


def describe_keyed(state: OperatorSubtaskState) -> object:
    if state.keyed is None:
        return None
    assert isinstance(state.keyed, KeyGroupsSavepointStateHandle)
    key_groups = state.keyed.key_group_range
    return (
        f"{key_groups.start}..{key_groups.end}",
        describe_stream(state.keyed.stream),
        list(state.keyed.offsets)[:REPORTED_OFFSETS],
    )


def describe_operator_state(handle: OperatorStreamStateHandle | None) -> object:
    if handle is None:
        return None
    states = {name: f"{MODES[mode]} {json.dumps(offsets)}" for name, mode, offsets in handle.states}
    return describe_stream(handle.stream), states


def describe_stream(stream: StreamStateHandle) -> tuple[str, int]:
    if isinstance(stream, ByteStreamStateHandle):
        return f"ByteStreamStateHandle({len(stream.data)} bytes, name={stream.name})", len(stream.data)
    assert not isinstance(stream, FileStateHandle)
    return f"RelativeFileStateHandle({stream.path}, {stream.size_bytes})", stream.size_bytes


def expected(facts: Json) -> Json:
    return {
        "id": facts["operatorID"],
        "parallelism": (facts["parallelism"], facts["maxParallelism"]),
        "names": (optional(facts.get("name")), optional(facts.get("uid"))),
        "coordinator": facts.get("coordinatorStateHex"),
        "subtasks": {subtask["index"]: expected_subtask(subtask) for subtask in facts["subtasks"]},
    }


def expected_subtask(facts: Json) -> Json:
    keyed = operator = None
    if "managedKeyed" in facts:
        (one,) = facts["managedKeyed"]
        assert one["class"] == "KeyGroupsSavepointStateHandle"
        keyed = (one["keyGroupRange"], (one["delegate"], one["size"]), one["offsets"])
    if "managedOperator" in facts:
        (one,) = facts["managedOperator"]
        operator = ((one["delegate"], one["size"]), one["offsets"])
    assert set(facts) <= {"index", "managedKeyed", "managedOperator"}
    return {"keyed": keyed, "operator": operator}


def optional(text: str | None) -> str:
    """Return the text of Java's ``Optional[x]``."""
    match = re.fullmatch(r"Optional\[(.*)\]", text or "")
    return match.group(1) if match else ""


def test_operator_ids_follow_from_uids(snapshot: Snapshot) -> None:
    for name, hex_id in snapshot.about["operatorIds"].items():
        assert operator_id(name.removesuffix(": Writer")).hex() == hex_id


def test_metadata_written_as_version_3_are_read_back(snapshot: Snapshot) -> None:
    metadata, _, _ = snapshot.metadata()
    operators = tuple(dataclasses.replace(operator, name="", uid="") for operator in metadata.operators)
    as_v3 = dataclasses.replace(metadata, operators=operators, version=3, properties=b"")
    data = encode_metadata(as_v3)
    assert decode_metadata(data) == (as_v3, len(data))


def test_a_file_of_flink_has_no_manifest(snapshot: Snapshot) -> None:
    metadata, _, data = snapshot.metadata()
    assert read_checkpoint_file(data) == (metadata, None)


def test_every_truncation_is_detected() -> None:
    _, _, data = load("1.20.5/kinds-hashmap-canonical-p4-files").metadata()
    properties = data.rindex(b"\xac\xed\x00\x05")
    for size in range(properties + 4):
        with pytest.raises(CorruptStateError):
            decode_metadata(data[:size])


def operator_streams(snapshot: Snapshot, uid: str) -> list[tuple[OperatorStreamStateHandle, bytes]]:
    hex_id = snapshot.about["operatorIds"][uid]
    (operator,) = [o for o in snapshot.metadata()[0].operators if o.operator_id.hex() == hex_id]
    handles = [state.operator for _, state in operator.subtasks if state.operator is not None]
    return [(handle, bytes(snapshot.content(handle.stream))) for handle in handles]


@pytest.mark.parametrize("version", ["1.20.5", "2.3.0"])
def test_operator_state_of_a_source_is_read(version: str) -> None:
    """One split is ``i32 splitSerializerVersion, i32 length, bytes`` inside a byte array."""
    ((handle, data),) = operator_streams(load(f"{version}/opstate-canonical-p2"), "source")
    header = decode_operator_header(data)
    ((name, _, (offset,)),) = handle.states
    assert (name, offset) == ("SourceReaderState", header.size_bytes)
    assert [(info.name, info.serializers) for info in header.states] == [(name, {"VALUE_SERIALIZER": BYTES})]
    assert int.from_bytes(data[offset : offset + 4], "big") == len(data) - offset - 4
