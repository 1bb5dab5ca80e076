"""A snapshot with a broadcast map of Kryo's values: described, exported and verified, whether it can be divided or
not."""

import json
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.cli.presenters.snapshot_document import describe
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.formats.operator_state import OperatorStateContent, encode_operator_state
from statelib.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from statelib.model.handles import ByteStreamStateHandle, OperatorStreamStateHandle
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.types import LONG, STRING, Opaque, StateType
from statelib.savepoints.lines import LINE_FORMATS, export_all_lines
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.verification.snapshots import verify
from tests.golden.flink_fixtures import ROOT
from tests.golden.flink_fixtures import opened as opened_fixture

SERIALIZER = "org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer"


def kryo() -> StateType:
    """Return a type as it is in a real header."""
    value_type = opened_fixture(ROOT / "1.20.5" / "kryo-hashmap-canonical").schema().state("uuid").value_type
    assert isinstance(value_type, Opaque)
    return value_type


def snapshot(path: Path, *entries: bytes) -> Checkpoint:
    """Write and open a snapshot of one operator with a list and, after it, a map of these entries."""
    number = OperatorStateDescriptor("n", OperatorStateMode.SPLIT_DISTRIBUTE, LONG)
    numbers = OperatorStateContent(number, pa.array([7]))
    rules = OperatorStateDescriptor("rules", OperatorStateMode.BROADCAST, kryo(), STRING)
    empty = OperatorStateContent(rules, pa.array([], pa.large_binary()), pa.array([], pa.string()))
    data, states = encode_operator_state([numbers, empty])
    ((begin,),) = (offsets for name, _, offsets in states if name == "rules")
    data = data[:begin] + struct.pack(">i", len(entries)) + b"".join(entries)
    handle = OperatorStreamStateHandle(states, ByteStreamStateHandle("operator", data))
    operators = (OperatorState(bytes(16), 1, 128, ((0, OperatorSubtaskState(operator=handle)),)),)
    (path / "_metadata").write_bytes(encode_metadata(CheckpointMetadata(1, operators)))
    return open_checkpoint(str(path))


def lines(opened: Checkpoint, form: str = "typed-jsonl") -> list[dict[str, object]]:
    return [json.loads(line) for line in export_all_lines(opened, None, form=LINE_FORMATS[form])]


@pytest.mark.parametrize("form", LINE_FORMATS)
def test_a_map_that_cannot_be_divided_is_one_line_beside_the_other_state(form: str, tmp_path: Path) -> None:
    number, whole = lines(snapshot(tmp_path, b"\x02ax\x00z", b"\x02b\x02yz"), form)
    assert number["state"] == "n"
    value = whole["value"]
    assert isinstance(value, dict)
    assert (value["serializer"], value["class"], value["entries"]) == (SERIALIZER, "java.util.UUID", 2)
    assert bytes.fromhex(value["hex"]) == b"\x02ax\x00z\x02b\x02yz"
    assert "register_decoder" in value["note"]
    assert not {"uk", "user_key"} & set(whole)


@pytest.mark.parametrize("form", LINE_FORMATS)
def test_a_map_that_can_be_divided_in_one_way_has_one_line_per_entry(form: str, tmp_path: Path) -> None:
    _, *entries = lines(snapshot(tmp_path, b"\x02axyz", b"\x02bxy"), form)
    assert [entry["value"]["hex"] for entry in entries] == [b"xyz".hex(), b"xy".hex()]
    key = "uk" if form == "typed-jsonl" else "user_key"
    assert [entry[key] for entry in entries] == [{"type": "string", "v": k} if key == "uk" else k for k in "ab"]


def test_the_snapshot_is_described_and_verified(tmp_path: Path) -> None:
    opened = snapshot(tmp_path, b"\x02ax\x00z", b"\x02b\x02yz")
    (operator,) = describe(opened)["operators"]
    described = {state["name"]: (state["elements"], state["opaque"]) for state in operator["operator_states"]}
    assert described == {"n": (1, []), "rules": (2, [SERIALIZER])}
    assert not any("unreadable" in state for state in operator["operator_states"])
    assert verify(opened).problems == ()
