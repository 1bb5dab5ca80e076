"""Serializers of Flink's operators whose bytes are those of other types: the bytes below were written by Flink 1.20.5
and 2.3.0, which agree."""

import numpy as np
import pytest

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.types import LONG, STRING, Like, MapOf, Opaque, StateType
from statelib.serializers.registry import codec_of
from statelib.serializers.skippers import skipper_of
from statelib.serializers.snapshots import decode_serializer_snapshot, encode_serializer_snapshot
from statelib.serializers.type_text import parse_type
from statelib.serializers.typed_json import json_reader
from statelib.wire.ragged import concat, from_fixed
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

FLINK = "org.apache.flink."
BASE = FLINK + "api.common.typeutils.base."
TABLE = FLINK + "table.runtime.typeutils."
WINDOW = FLINK + "table.runtime.operators.window."
ELEMENT = FLINK + "streaming.runtime.streamrecord.StreamElementSerializer$StreamElementSerializerSnapshot"
UNION = FLINK + "streaming.api.datastream.CoGroupedStreams$UnionSerializerSnapshot"
SCALA = FLINK + "api.scala.typeutils."
BUFFER = FLINK + "streaming.api.operators.co.IntervalJoinOperator$BufferEntrySerializerSnapshot"
ROW = "0000001000000000000000000700000000000000"


SCALA_NAMES = b"\0\3a.E" + bytes.fromhex("00000002") + b"\0\3ONE" + bytes(4) + b"\0\3TWO"
"""A Scala enumeration with the ids 0 and, to be appended, that of TWO."""


def simple(name: str, payload: bytes = b"") -> bytes:
    writer = Writer()
    writer.utf(name)
    writer.i32(3)
    writer.put(payload)
    return writer.getvalue()


def composite(name: str, own: int, *nested: StateType, outer: bytes = b"") -> bytes:
    parts = b"".join(map(encode_serializer_snapshot, nested))
    head = bytes.fromhex("000de704") + own.to_bytes(4, "big") + outer
    return simple(name, head + bytes.fromhex("001457fd00000001") + len(nested).to_bytes(4, "big") + parts)


def of_base(name: str) -> bytes:
    return simple(f"{BASE}{name}Serializer${name}SerializerSnapshot")


def long(value: int) -> dict[str, object]:
    return {"type": "long", "v": value}


CASES = [
    (of_base("LongValue"), "0000000000000005", long(5)),
    (of_base("BooleanValue"), "01", {"type": "boolean", "v": True}),
    (of_base("CharValue"), "0078", {"type": "char", "v": 120}),
    (of_base("StringValue"), "0261e901", {"type": "string", "v": "aé"}),
    (of_base("StringValue"), "00", {"type": "string", "v": ""}),
    (simple(FLINK + "api.java.typeutils.runtime.Tuple0SerializerSnapshot"), "2a", {"type": "byte", "v": 42}),
    (
        simple(WINDOW + "TimeWindow$Serializer$TimeWindowSerializerSnapshot"),
        "00000000000000010000000000000002",
        {"type": "timewindow", "start": 1, "end": 2},
    ),
    (simple(WINDOW + "CountWindow$Serializer$CountWindowSerializerSnapshot"), "0000000000000001", long(1)),
    (
        composite(FLINK + "runtime.state.ArrayListSerializerSnapshot", 1, LONG),
        "000000010000000000000003",
        {"type": "list", "v": [long(3)]},
    ),
    (
        simple(TABLE + "BinaryRowDataSerializer$BinaryRowDataSerializerSnapshot", bytes(3) + b"\x01"),
        ROW,
        {"type": "bytes", "hex": ROW[8:]},
    ),
    (
        composite(TABLE + "LinkedListSerializer$LinkedListSerializerSnapshot", 3, LONG, outer=b"\0"),
        "000000010000000000000001",
        {"type": "list", "v": [long(1)]},
    ),
    (
        composite(TABLE + "WindowKeySerializer$WindowKeySerializerSnapshot", 1, STRING),
        "00000000000000050261",
        {"type": "tuple2", "v": [long(5), {"type": "string", "v": "a"}]},
    ),
    (
        composite(FLINK + "table.dataview.NullAwareMapSerializerSnapshot", 1, LONG, LONG),
        "00000001000000000000000001" + "0000000000000002",
        {"type": "list", "v": [{"type": "tuple2", "v": [long(1), long(2)]}]},
    ),
    (
        composite(FLINK + "table.dataview.MapViewSerializerSnapshot", 1, MapOf(LONG, LONG)),
        "00000000",
        {"type": "map", "v": []},
    ),
    (
        composite(ELEMENT, 2, LONG),
        "0000000000000000050000000000000007",
        {"type": "oneof", "tag": 0, "v": {"type": "tuple2", "v": [long(5), long(7)]}},
    ),
    (composite(ELEMENT, 2, LONG), "010000000000000007", {"type": "oneof", "tag": 1, "v": long(7)}),
    (composite(ELEMENT, 2, LONG), "020000000000000009", {"type": "oneof", "tag": 2, "v": long(9)}),
    (composite(UNION, 2, LONG, STRING), "020278", {"type": "oneof", "tag": 2, "v": {"type": "string", "v": "x"}}),
    (
        composite(SCALA + "ScalaCaseClassSerializerSnapshot", 2, STRING, LONG, outer=b"\0\3a.B"),
        "0261" + "0000000000000005",
        {"type": "tuple2", "v": [{"type": "string", "v": "a"}, long(5)]},
    ),
    (composite(SCALA + "ScalaOptionSerializerSnapshot", 2, LONG), "010000000000000005", long(5)),
    (composite(SCALA + "ScalaOptionSerializerSnapshot", 2, LONG), "00", {"type": "null"}),
    (
        composite(SCALA + "ScalaEitherSerializerSnapshot", 1, LONG, STRING),
        "000261",
        {"type": "either", "side": "right", "v": {"type": "string", "v": "a"}},
    ),
    (
        composite(SCALA + "ScalaTrySerializerSnapshot", 2, LONG, STRING),
        "010000000000000005",
        {"type": "either", "side": "left", "v": long(5)},
    ),
    (
        composite(SCALA + "TraversableSerializerSnapshot", 2, LONG, outer=b"\0\4code"),
        "00000002" + "010000000000000005" + "00",
        {"type": "list", "v": [long(5), {"type": "null"}]},
    ),
    (
        simple(SCALA + "ScalaEnumSerializerSnapshot", SCALA_NAMES + b"\0\0\0\1"),
        "00000001",
        {"type": "enum", "v": "TWO", "ordinal": 1},
    ),
    (simple(SCALA + "ScalaEnumSerializerSnapshot", SCALA_NAMES + b"\0\0\0\7"), "00000007", {"type": "int", "v": 7}),
    (
        composite(BUFFER, 2, STRING),
        "000278",
        {"type": "tuple2", "v": [{"type": "boolean", "v": False}, {"type": "string", "v": "x"}]},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("snapshot", "stored", "typed"), CASES)
def test_values_are_read_and_the_snapshot_is_written_back(snapshot: bytes, stored: str, typed: object) -> None:
    reader = Reader(snapshot + b"more", "snapshot")
    decoded = decode_serializer_snapshot(reader)
    assert isinstance(decoded, Like)
    assert reader.remaining == 4
    assert encode_serializer_snapshot(decoded) == snapshot
    assert str(parse_type(str(decoded))) == str(decoded)
    value = bytes.fromhex(stored)
    assert json_reader(decoded)(Reader(value, "value")) == typed
    codec, data = codec_of(decoded), np.frombuffer(value * 2, np.uint8)
    starts, limits = np.array([0, len(value)]), np.array([len(value), 2 * len(value)])
    column, ends = codec.decode(data, starts, limits)
    assert ends.tolist() == limits.tolist() == codec.skip(data, starts, limits).tolist()
    assert codec.encode(column).data.tobytes() == value * 2
    assert skipper_of((codec,))(value * 2, 0) == len(value)
    with pytest.raises(UnsupportedError):
        codec.java_hash(column)


def test_a_list_with_a_mask_of_nulls_stays_bytes() -> None:
    name = TABLE + "LinkedListSerializer$LinkedListSerializerSnapshot"
    snapshot = composite(name, 3, LONG, outer=b"\1")
    decoded = decode_serializer_snapshot(Reader(snapshot, "snapshot"))
    assert isinstance(decoded, Opaque)
    assert decoded.serializer == TABLE + "LinkedListSerializer"
    assert encode_serializer_snapshot(decoded) == snapshot


def test_an_option_of_a_value_that_may_be_null_stays_bytes() -> None:
    """Columns and JSON have one null, so Some(None) and None would look the same."""
    option = SCALA + "ScalaOptionSerializerSnapshot"
    inner = decode_serializer_snapshot(Reader(composite(option, 2, LONG), "snapshot"))
    for name, outer in ((option, b""), (SCALA + "TraversableSerializerSnapshot", b"\0\4code")):
        snapshot = composite(name, 2, inner, outer=outer)
        decoded = decode_serializer_snapshot(Reader(snapshot, "snapshot"))
        assert isinstance(decoded, Opaque)
        assert encode_serializer_snapshot(decoded) == snapshot


def test_a_value_with_an_opaque_part_cannot_be_skipped() -> None:
    for text in ("pojo<a.B; x: opaque<a.S>, y: long>", "nullable<opaque<a.S>>", "either<opaque<a.S>, long>"):
        over = skipper_of((codec_of(parse_type(text)),))
        with pytest.raises(UnsupportedError) as caught:
            over(b"\2" + bytes(40), 0)
        assert caught.value.kind == "opaque-entries"


def test_damaged_values_are_refused() -> None:
    union = decode_serializer_snapshot(Reader(composite(UNION, 2, LONG, STRING), "snapshot"))
    rows = concat([from_fixed(np.array([[3]], np.uint8))])
    with pytest.raises(CorruptStateError) as caught:
        codec_of(union).skip(rows.data, rows.starts, rows.offsets[1:])
    assert caught.value.kind == "bad-tag"
    with pytest.raises(CorruptStateError) as caught:
        json_reader(union)(Reader(b"\x03", "value"))
    assert caught.value.kind == "bad-tag"
    with pytest.raises(UnsupportedError, match="nested serializers"):
        decode_serializer_snapshot(Reader(composite(UNION, 2, LONG), "snapshot"))
    with pytest.raises(UnsupportedError, match="version 4"):
        decode_serializer_snapshot(Reader(of_base("LongValue")[:-1] + b"\x04", "snapshot"))
