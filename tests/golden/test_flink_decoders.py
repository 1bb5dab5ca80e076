"""Values that only a user's classes can read: as bytes, or by a decoder that the user registers."""

import json
import struct
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.cli.presenters.snapshot_document import describe
from statelib.errors import UnsupportedError
from statelib.formats.keyed.header import encode_header
from statelib.formats.metadata.metadata_file import decode_metadata, encode_metadata
from statelib.formats.text import natural_json
from statelib.formats.text.typed_json import entry_lines, operator_lines
from statelib.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, STRING, TIME_WINDOW, Field, Nullable, ObjectArray, Opaque, Pojo, StateType
from statelib.savepoints.lines import export_all_lines
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.tables.state_table import state_table
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.savepoints.writing.rewritten_savepoint import OperatorChange, rewrite
from statelib.serializers import register_decoder
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.java.decoders import unregister_decoder
from statelib.serializers.registry import codec_of
from statelib.serializers.skippers import skipper_of
from statelib.serializers.snapshots import encode_serializer_snapshot
from statelib.wire.ragged import from_list
from statelib.wire.reader import Reader
from tests.golden.flink_fixtures import ROOT, opened

(KEYS,) = (ROOT / "1.20.5" / "keys-long-hashmap-canonical").glob("savepoint-*")
KRYO = ROOT / "1.20.5" / "kryo-hashmap-canonical"
NAME = "java.util.UUID"
KIND = Opaque("a.KryoSerializer", NAME)


def kryo_uuid(reader: Reader) -> str:
    """Return the bytes of Kryo 2: the number of the class, a flag, two variable-length longs with the sign in bit
    0."""
    reader.take(2)
    halves = []
    for _ in range(2):
        value, shift = 0, 0
        while True:
            byte = reader.u8()
            value |= (byte if shift == 56 else byte & 0x7F) << shift
            shift += 7
            if shift > 56 or byte < 0x80:
                break
        halves.append((value >> 1) ^ -(value & 1))
    return str(uuid.UUID(bytes=struct.pack(">qq", *halves)))


def length_and_text(reader: Reader) -> str:
    return bytes(reader.take(reader.u8())).decode()


@pytest.fixture
def registered() -> Iterator[None]:
    register_decoder(NAME, kryo_uuid)
    yield
    unregister_decoder(NAME)


@pytest.mark.usefixtures("registered")
def test_a_decoder_gives_the_values_of_the_job() -> None:
    values = {}
    for line in map(json.loads, export_all_lines(opened(KRYO), "uuid")):
        assert (line["value"]["type"], line["value"]["class"]) == ("decoded", NAME)
        values[line["key"]["v"]] = line["value"]["v"]
    truth = map(json.loads, (KRYO / "truth.jsonl").read_text(encoding="utf-8").splitlines())
    assert values == {line["key"]["v"]: line["value"]["v"] for line in truth}
    assert len(values) > 30


def lines_of(type_: StateType, value: bytes) -> list[str]:
    state = StateDescriptor("s", StateKind.VALUE, type_)
    rows = StateRows(from_list([bytes(10)]), from_list([value]))
    return [json.loads(line)["value"] for line in entry_lines("op", KeyedStateSchema(LONG, 128, (state,)), state, rows)]


def test_a_value_with_an_opaque_part_before_its_end_is_opaque_as_a_whole() -> None:
    pojo = Pojo("a.B", (Field("k", KIND), Field("n", LONG)))
    value = b"\x02\x00\x01x\x00" + struct.pack(">q", 5)
    opaque = {"type": "opaque", "serializer": "a.KryoSerializer"}
    assert lines_of(pojo, value) == [opaque | {"hex": value.hex()}]
    assert lines_of(Nullable(KIND), b"\x00xy") == [opaque | {"hex": b"xy".hex()}]
    register_decoder("a.KryoSerializer", length_and_text)
    try:
        fields = {"k": {"type": "decoded", "class": NAME, "v": "x"}, "n": {"type": "long", "v": 5}}
        assert lines_of(pojo, value) == [{"type": "pojo", "class": "a.B", "v": fields}]
    finally:
        unregister_decoder("a.KryoSerializer")


def test_an_array_of_such_values_can_be_skipped_with_a_decoder() -> None:
    value = struct.pack(">i", 3) + b"\x01\x01x" + b"\x00" + b"\x01\x01y"
    register_decoder("a.KryoSerializer", length_and_text)
    try:
        assert skipper_of([codec_of(ObjectArray("a.B", KIND))])(value + b"more", 0) == len(value)
    finally:
        unregister_decoder("a.KryoSerializer")


def test_operator_state_of_such_values_is_exported_as_bytes() -> None:
    elements = OperatorStateDescriptor("e", OperatorStateMode.UNION, KIND)
    (line,) = operator_lines("op", elements, [b"\1\2"])
    assert json.loads(line)["value"]["hex"] == "0102"
    rules = OperatorStateDescriptor("r", OperatorStateMode.BROADCAST, KIND, STRING)
    (line,) = operator_lines("op", rules, [struct.pack(">i", 1) + b"\x02a" + b"xyz"])
    assert (json.loads(line)["uk"]["v"], json.loads(line)["value"]["hex"]) == ("a", b"xyz".hex())


def test_entries_that_cannot_be_divided_are_exported_as_one() -> None:
    rules = OperatorStateDescriptor("r", OperatorStateMode.BROADCAST, KIND, STRING)
    stored = struct.pack(">i", 2) + b"\x02ax\x00z\x02b\x02yz"
    (line,) = map(json.loads, operator_lines("op", rules, [stored]))
    assert "uk" not in line
    assert line["value"].pop("note").endswith("statelib.serializers.register_decoder")
    assert line["value"] == {
        "type": "opaque", "serializer": "a.KryoSerializer", "class": NAME, "entries": 2, "hex": stored[4:].hex(),
        "types": ["string", f"opaque<a.KryoSerializer; {NAME}>"],
    }  # fmt: skip
    (plain,) = map(json.loads, natural_json.operator_lines("op", rules, [stored]))
    assert (plain["state"], plain["value"]["entries"], plain["value"]["hex"]) == ("r", 2, stored[4:].hex())
    register_decoder(NAME, length_and_text)
    try:
        stored = struct.pack(">i", 2) + b"\x02a\x02xy" + b"\x02b\x01z"
        lines = [json.loads(line) for line in operator_lines("op", rules, [stored])]
        assert [(line["uk"]["v"], line["value"]["v"]) for line in lines] == [("a", "xy"), ("b", "z")]
    finally:
        unregister_decoder(NAME)


def test_states_whose_entries_cannot_be_divided_are_still_listed(tmp_path: Path) -> None:
    snapshot = struct.pack(">H", 3) + b"a.S" + struct.pack(">i", 3)
    states = [StateDescriptor(name, StateKind.VALUE, Opaque("a.S", "", snapshot)) for name in ("one", "two")]
    header = encode_header(KeyedStateSchema(LONG, 1, tuple(states)), compressed=False)
    entry = struct.pack(">bq", 0, 7) + b"\1\2\3"
    data = header + struct.pack(">i", 0) + b"".join(struct.pack(">hi", i, 2) + entry * 2 for i in range(2))
    keyed = KeyGroupsStateHandle(KeyGroupRange(0, 0), (len(header),), ByteStreamStateHandle("heap", data))
    operators = (OperatorState(bytes(16), 1, 1, ((0, OperatorSubtaskState(keyed=keyed)),)),)
    (tmp_path / "_metadata").write_bytes(encode_metadata(CheckpointMetadata(1, operators)))
    (described,) = describe(open_checkpoint(str(tmp_path)), counted=True)["operators"]
    assert "only the class of its serializer can find where" in described["unreadable"]
    assert [(state["name"], state["entries"]) for state in described["states"]] == [("one", None), ("two", None)]
    assert described["key_type"] == "long"


def raw_timers() -> KeyGroupsStateHandle:
    types = encode_serializer_snapshot(LONG) + encode_serializer_snapshot(TIME_WINDOW)
    timer = struct.pack(">qqqq", 42, 0, 10, 9)
    data = bytes.fromhex("f1cd859f 00000002 00000001 0001 74") + types + struct.pack(">i", 1) + timer + bytes(4)
    return KeyGroupsStateHandle(KeyGroupRange(29, 29), (0,), ByteStreamStateHandle("raw", data))


def with_raw_timers(path: Path) -> Checkpoint:
    """Return a savepoint of Flink with timers in raw keyed state beside its keyed state."""
    metadata, _ = decode_metadata((KEYS / "_metadata").read_bytes())
    (index,) = (i for i, o in enumerate(metadata.operators) if any(state.keyed for _, state in o.subtasks))
    operator = metadata.operators[index]
    subtasks = tuple((i, replace(state, raw_keyed=raw_timers())) for i, state in operator.subtasks)
    operators = (*metadata.operators[:index], replace(operator, subtasks=subtasks), *metadata.operators[index + 1 :])
    path.mkdir()
    (path / "_metadata").write_bytes(encode_metadata(replace(metadata, operators=operators)))
    return open_checkpoint(str(path))


def test_state_beside_timers_in_raw_keyed_state_is_read_in_splits(tmp_path: Path) -> None:
    saved = with_raw_timers(tmp_path / "saved")
    name = saved.schema().states[0].name
    table = state_table(saved, name)
    parts = [part for split in table.splits(None, 1, 1) for part in table.read(split, ["key"])]
    assert sum(map(len, parts)) == len(saved.to_arrow(name)) > 0
    with pytest.raises(UnsupportedError) as caught:
        state_table(saved, "_timer_state/event_t")
    assert caught.value.kind == "raw-keyed-state"


def test_timers_in_raw_keyed_state_cannot_be_replaced_by_a_rewrite(tmp_path: Path) -> None:
    """The raw timers are copied, so a table in their place would add them a second time."""
    saved = with_raw_timers(tmp_path / "saved")
    uid = saved.keyed_operator().operator_id.hex()
    timers = saved.schema().state("_timer_state/event_t")
    change = {uid: OperatorChange(put={timers: saved.to_arrow(timers.name)})}
    with pytest.raises(UnsupportedError, match="_timer_state/event_t") as caught:
        rewrite(saved, NewSavepoint(str(tmp_path), "again"), changes=change)
    assert caught.value.kind == "raw-keyed-state"
    change = {uid: OperatorChange()}
    again = open_checkpoint(rewrite(saved, NewSavepoint(str(tmp_path), "again"), changes=change))
    assert again.to_arrow(timers.name) == saved.to_arrow(timers.name)


def test_timers_in_raw_keyed_state_are_exported_and_never_lost_silently(tmp_path: Path) -> None:
    """Timers are in raw keyed state if the state is in RocksDB and the timers are on the heap."""
    operators = (OperatorState(bytes(16), 1, 128, ((0, OperatorSubtaskState(raw_keyed=raw_timers())),)),)
    (tmp_path / "_metadata").write_bytes(encode_metadata(CheckpointMetadata(1, operators)))
    values = open_checkpoint(str(tmp_path))
    (line,) = export_all_lines(values, None)
    assert line == (
        '{"op":"00000000000000000000000000000000","state":"t","kind":"eventTimer","key":{"type":"long","v":42},"kg":29,'
        '"ns":{"type":"timewindow","start":0,"end":10},"ts":9}'
    )
    assert [s.name for s in values.schema().states] == ["_timer_state/event_t", "_timer_state/processing_t"]
    with pytest.raises(UnsupportedError) as caught:
        values.sources()
    assert caught.value.kind == "raw-keyed-state"
