"""Entries of broadcast state without lengths: divided where there is one way to, left whole elsewhere."""

import json
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.operator_state import OperatorStateContent, OperatorStream, encode_operator_state
from statelib.formats.text.typed_json import operator_lines
from statelib.model.handles import ByteStreamStateHandle, OperatorStreamStateHandle
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.types import BOOLEAN, LONG, STRING, Enumeration, Opaque, StateType
from statelib.serializers.entries.broadcast import MOST_BYTES, entry_spans
from statelib.serializers.java.decoders import register_decoder, unregister_decoder
from statelib.serializers.snapshots import encode_serializer_snapshot
from statelib.wire.reader import Reader

KRYO = Opaque("a.KryoSerializer", "a.Rule", encode_serializer_snapshot(LONG))
LEVEL = Enumeration("a.Level", ("LOW", "HIGH"))


def rules(key: StateType, value: StateType) -> OperatorStateDescriptor:
    return OperatorStateDescriptor("rules", OperatorStateMode.BROADCAST, value, key)


def stored(*entries: bytes) -> bytes:
    return struct.pack(">i", len(entries)) + b"".join(entries)


def lines(key: StateType, value: StateType, part: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in operator_lines("op", rules(key, value), [part])]


def level(ordinal: int) -> bytes:
    return struct.pack(">i", ordinal)


def test_a_single_entry_ends_at_the_end_of_the_map() -> None:
    assert entry_spans(rules(STRING, KRYO), stored(b"\x02axyz"), "r") == [(4, 6, 9)]
    assert entry_spans(rules(KRYO, LONG), stored(b"xyz" + bytes(8)), "r") == [(4, 7, 15)]
    (line,) = lines(KRYO, LONG, stored(b"xyz" + struct.pack(">q", 7)))
    assert line["uk"] == {"type": "opaque", "serializer": "a.KryoSerializer", "hex": b"xyz".hex()}
    assert line["value"] == {"type": "long", "v": 7}


@pytest.mark.parametrize(("key", "value"), [(STRING, KRYO), (KRYO, LONG), (KRYO, KRYO), (KRYO, STRING)])
def test_an_empty_map_has_no_lines(key: StateType, value: StateType) -> None:
    assert lines(key, value, stored()) == []


@pytest.mark.parametrize(
    ("key", "value", "entries"),
    [
        (STRING, KRYO, [b"\x02ax\x00z", b"\x02b\x02yz"]),
        (BOOLEAN, KRYO, [b"\0\1\1", b"\1\1\1"]),
        (KRYO, LONG, [bytes(10), bytes(9)]),
        (KRYO, STRING, [b"x\x02a"]),
        (KRYO, KRYO, [b"xy"]),
    ],
)
def test_entries_that_could_be_divided_in_several_ways_stay_together(
    key: StateType, value: StateType, entries: list[bytes]
) -> None:
    part = stored(*entries)
    assert entry_spans(rules(key, value), part, "r") is None
    (line,) = lines(key, value, part)
    assert "uk" not in line
    assert line["value"]["entries"] == len(entries)
    assert bytes.fromhex(line["value"]["hex"]) == b"".join(entries)


def test_entries_are_divided_if_only_one_way_is_possible() -> None:
    part = stored(level(1) + b"\x54\x01\x02\x04", level(0) + b"\x54\x01\x02\x04\x06")
    assert entry_spans(rules(LEVEL, KRYO), part, "r") == [(4, 8, 12), (12, 16, 21)]
    results = [(line["uk"]["v"], line["value"]["hex"]) for line in lines(LEVEL, KRYO, part)]
    assert results == [("HIGH", "54010204"), ("LOW", "5401020406")]
    assert entry_spans(rules(LEVEL, KRYO), part + bytes(MOST_BYTES), "r") is None
    texts = stored(b"\x02axyz", b"\x02bxyz")
    assert entry_spans(rules(STRING, KRYO), texts, "r") == [(4, 6, 9), (9, 11, 14)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=12)), max_size=4))
def test_divided_entries_are_those_that_were_written(entries: list[tuple[int, bytes]]) -> None:
    part = stored(*(level(ordinal) + value for ordinal, value in entries))
    spans = entry_spans(rules(LEVEL, KRYO), part, "r")
    if spans is not None:
        results = [(part[begin:middle], part[middle:end]) for begin, middle, end in spans]
        assert results == [(level(ordinal), value) for ordinal, value in entries]
    elif len(entries) > 1:
        ambiguous = sum(part[at : at + 4] in (level(0), level(1)) for at in range(4, len(part)))
        assert ambiguous > len(entries)


def test_a_damaged_count_is_refused() -> None:
    with pytest.raises(CorruptStateError) as caught:
        lines(STRING, KRYO, struct.pack(">i", 1 << 30) + b"\x02axyz")
    assert caught.value.kind == "bad-count"


def opened(part: bytes, key: StateType, value: StateType) -> tuple[OperatorStream, OperatorStateDescriptor]:
    """Return a stream whose map has these bytes."""
    descriptor = rules(key, value)
    empty = OperatorStateContent(descriptor, pa.array([], pa.large_binary()), pa.array([], pa.string()))
    data, ((name, mode, offsets),) = encode_operator_state([empty])
    whole = data[: offsets[0]] + part
    stream = ByteStreamStateHandle("operator", whole)
    return OperatorStream(OperatorStreamStateHandle(((name, mode, offsets),), stream), whole), descriptor


def test_columns_contain_divided_entries_and_refuse_others() -> None:
    stream, descriptor = opened(stored(b"\x02axyz"), STRING, KRYO)
    content = stream.read(descriptor)
    assert (content.keys.to_pylist(), content.values.to_pylist()) == (["a"], [b"xyz"])
    part = stored(b"\x02a\x00\x02xy", b"\x02b\x00\x01z")
    stream, descriptor = opened(part, STRING, KRYO)
    assert stream.stored(descriptor) == (part,)
    with pytest.raises(UnsupportedError) as caught:
        stream.read(descriptor)
    assert caught.value.kind == "opaque-entries"
    register_decoder("a.Rule", Reader.utf)
    try:
        content = stream.read(descriptor)
        assert content.keys.to_pylist() == ["a", "b"]
        assert content.values.to_pylist() == [b"\x00\x02xy", b"\x00\x01z"]
    finally:
        unregister_decoder("a.Rule")
