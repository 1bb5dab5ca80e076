"""The values that the codecs accept from callers, and the errors for all others."""

import decimal

import pyarrow as pa
import pytest

from statelib.errors import CorruptStateError, InvalidRequestError, UnsupportedError
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import BYTE, DATE, LONG, STRING, ArrayOf, Field, Row, Scalar, StateType, Tuple
from statelib.serializers.entries.keys import decode_keys, encode_keys, key_groups
from statelib.serializers.entries.values import decode_values, encode_values
from statelib.serializers.registry import codec_of
from statelib.serializers.snapshots import decode_serializer_snapshot, encode_serializer_snapshot
from statelib.serializers.type_text import parse_type
from statelib.wire.ragged import from_list
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

SAME = [
    ("string", pa.array(["a", "é"]), pa.large_string()),
    ("string", pa.array(["a", "é"]), pa.string_view()),
    ("string", pa.array(["a", "b", "a"]), pa.dictionary(pa.int8(), pa.string())),
    ("long", pa.array([1, 2]), pa.int8()),
    ("instant", pa.array([1_000_000], pa.timestamp("ns", "UTC")), pa.timestamp("us", "UTC")),
    ("instant", pa.array([1_000_000], pa.timestamp("ns", "UTC")), pa.timestamp("us", "Europe/Berlin")),
    ("datetime", pa.array([-1_000_000], pa.timestamp("ns")), pa.timestamp("us")),
    ("list<long>", pa.array([[1], []], pa.list_(pa.int64())), pa.large_list(pa.int32())),
    ("row<a: long>", pa.array([{"a": 1}, {"a": None}]), pa.struct([("other", pa.int32())])),
]


@pytest.mark.parametrize(("text", "column", "other"), SAME)
def test_other_arrow_encodings_of_the_same_values_are_accepted(text: str, column: pa.Array, other: pa.DataType) -> None:
    codec = codec_of(parse_type(text))
    if pa.types.is_struct(other):
        again = pa.StructArray.from_arrays([column.field(0).cast(pa.int32())], fields=list(other))
    else:
        again = column.dictionary_encode() if pa.types.is_dictionary(other) else column.cast(other)
    assert codec.encode(again).to_list() == codec.encode(column).to_list()
    assert codec.java_hash(again).tolist() == codec.java_hash(column).tolist()


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("long", pa.array(["12"])),
        ("string", pa.array([12])),
        ("int", pa.array([2**31])),
        ("long", pa.array([1.5])),
        ("long", pa.array([decimal.Decimal(1)])),
        ("instant", pa.array([1], pa.timestamp("us"))),
        ("datetime", pa.array([1], pa.timestamp("us", "UTC"))),
        ("datetime", pa.array([2**62], pa.timestamp("s"))),
        ("boolean", pa.array([1])),
        ("void", pa.array([1])),
        ("list<long>", pa.array([1])),
        ("map<string, long>", pa.array([["a"]])),
        ("tuple<long, long>", pa.array([{"f0": 1}])),
        ("row<a: long>", pa.array([{"a": "x"}])),
    ],
)
def test_columns_of_another_type_are_refused(text: str, column: pa.Array) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        codec_of(parse_type(text)).encode(column)
    assert caught.value.kind == "bad-value-type"


@pytest.mark.parametrize(
    "text", ["long", "string", "date", "boolean", "tuple<long>", "row<a: long>", "list<long>", "map<long, long>"]
)
def test_the_error_for_a_null_names_the_row(text: str) -> None:
    column = pa.nulls(3, codec_of(parse_type(text)).arrow_type)
    with pytest.raises(InvalidRequestError, match="row 0") as caught:
        codec_of(parse_type(text)).encode(column)
    assert caught.value.kind == "null-value"


@pytest.mark.parametrize(
    "column",
    [
        pa.array([{"f0": 1}, {"f0": None}], pa.struct([("f0", pa.int64())])),
        pa.array([[1], [None]], pa.list_(pa.int64())),
    ],
)
def test_nulls_within_tuples_and_lists_are_refused(column: pa.Array) -> None:
    text = "tuple<long>" if pa.types.is_struct(column.type) else "list<long>"
    with pytest.raises(InvalidRequestError, match="row 1"):
        codec_of(parse_type(text)).encode(column)


def test_null_keys_are_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        key_groups(KeyedStateSchema(STRING, 128, ()), pa.array(["a", None]))
    assert caught.value.kind == "null-key"


@pytest.mark.parametrize(
    "type_",
    [
        ArrayOf(BYTE),
        ArrayOf(DATE),
        Tuple(()),
        Tuple((LONG,) * 26),
        Row(()),
        Row((Field("a", LONG),) * 2),
        Scalar("uuid"),
    ],
)
def test_types_without_a_serializer_are_refused(type_: StateType) -> None:
    for call in (codec_of, encode_serializer_snapshot):
        with pytest.raises(InvalidRequestError) as caught:
            call(type_)
        assert caught.value.kind == "bad-type"


@pytest.mark.parametrize(
    ("text", "length"),
    [("void", 0), ("boolean", 1), ("date", 6), ("time", 7), ("instant", 12), ("datetime", 13), ("string", -1),
     ("bytes", -1),
     ("tuple<int, long>", 12), ("tuple<int, string>", -1), ("row<a: int>", -1), ("array<int>", -1)],
)  # fmt: skip
def test_each_type_has_the_length_that_its_serializer_reports(text: str, length: int) -> None:
    assert codec_of(parse_type(text)).reported_length == length


@pytest.mark.parametrize(
    "text",
    ["", "lung", "list<long", "list<long>>", "list<>", "map<long>", "list<long, long>", "row<long>", "row<: long>",
     "array<list<int>>",      "tuple<>", "long long", "long,", "list<" * 80 + "long" + ">" * 80],
)  # fmt: skip
def test_text_that_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_type(text)
    assert caught.value.kind == "bad-type-text"


def test_keys_with_missing_or_additional_bytes_are_refused() -> None:
    state = StateDescriptor("s", StateKind.VALUE, LONG)
    schema = KeyedStateSchema(LONG, 128, (state,))
    rows = encode_keys(schema, state, pa.array([1, 2]), key_groups(schema, pa.array([1, 2])))
    first, second = rows.to_list()
    for broken, kind in ((second + b"x", "trailing-bytes"), (second[:-1], "truncated-value"), (b"", "truncated-value")):
        with pytest.raises(CorruptStateError, match="row 1" if broken else "row") as caught:
            decode_keys(schema, state, from_list([first, broken]))
        assert caught.value.kind == kind


def test_lengths_in_ambiguous_keys_must_agree() -> None:
    state = StateDescriptor("s", StateKind.VALUE, LONG, namespace_type=STRING)
    schema = KeyedStateSchema(STRING, 128, (state,))
    good = bytes.fromhex("050261020101")
    assert decode_keys(schema, state, from_list([good])).namespaces.to_pylist() == [""]
    with pytest.raises(CorruptStateError) as caught:
        decode_keys(schema, state, from_list([good, good[:3] + b"\x03" + good[4:]]))
    assert caught.value.kind == "bad-key-length"


def test_only_a_map_state_has_user_keys() -> None:
    state = StateDescriptor("s", StateKind.VALUE, LONG)
    schema = KeyedStateSchema(LONG, 128, (state,))
    keys = pa.array([1])
    with pytest.raises(InvalidRequestError) as caught:
        encode_keys(schema, state, keys, key_groups(schema, keys), keys)
    assert caught.value.kind == "bad-key-parts"


def test_an_empty_list_state_can_be_read_but_not_written() -> None:
    state = StateDescriptor("s", StateKind.LIST, STRING)
    with pytest.raises(InvalidRequestError, match="row 1") as caught:
        encode_values(state, pa.array([["a"], []]))
    assert caught.value.kind == "empty-list"
    assert decode_values(state, from_list([b"", b"\x02a,\x01", b""])).to_pylist() == [[], ["a", ""], []]
    assert decode_values(StateDescriptor("s", StateKind.LIST, BYTE), from_list([b"", b",,,", b""])).to_pylist() == [
        [],
        [44, 44],
        [],
    ]


@pytest.mark.parametrize(
    ("kind", "type_", "raw", "error"),
    [
        (StateKind.LIST, STRING, b"\x02a.\x02b", "bad-separator"),
        (StateKind.LIST, STRING, b"\x02a,", "truncated-value"),
        (StateKind.LIST, BYTE, b"a.b", "bad-separator"),
        (StateKind.LIST, BYTE, b"a,", "truncated-value"),
        (StateKind.MAP, BYTE, b"", "truncated-value"),
        (StateKind.MAP, BYTE, b"\x00ab", "trailing-bytes"),
        (StateKind.VALUE, BYTE, b"ab", "trailing-bytes"),
    ],
)
def test_damaged_values_are_refused(kind: StateKind, type_: StateType, raw: bytes, error: str) -> None:
    state = StateDescriptor("s", kind, type_, LONG if kind is StateKind.MAP else None)
    with pytest.raises(CorruptStateError) as caught:
        decode_values(state, from_list([raw]))
    assert caught.value.kind == error


def test_bytes_after_a_null_user_value_are_ignored() -> None:
    state = StateDescriptor("s", StateKind.MAP, STRING, LONG)
    assert decode_values(state, from_list([b"\x01\x00", b"\x00\x02a", b"\x01"])).to_pylist() == [None, "a", None]
    rows = StateDescriptor("s", StateKind.MAP, parse_type("row<a: byte>"), STRING)
    # The last two are a row of another kind and half a row.
    behind_nulls = [b"\x01", b"\x00\x00\x07", b"\x01\xc0", b"\x01\x00"]
    assert decode_values(rows, from_list(behind_nulls)).to_pylist() == [None, {"a": 7}, None, None]


def test_the_snapshot_of_a_list_of_strings_has_these_exact_bytes() -> None:
    base = b"org.apache.flink.api.common.typeutils.base."
    expected = (
        b"\x00\x41"
        + base
        + b"ListSerializerSnapshot"
        + bytes.fromhex("00000003000de70400000001001457fd0000000100000001")
    )
    expected += b"\x00\x5d" + base + b"StringSerializer$StringSerializerSnapshot" + bytes.fromhex("00000003")
    expected = expected.replace(b"\x00\x5d", (len(base) + 41).to_bytes(2, "big"))
    assert encode_serializer_snapshot(parse_type("list<string>")) == expected


def test_void_has_the_namespace_serializer_only_outside_of_rows() -> None:
    assert b"VoidNamespaceSerializerSnapshot" in encode_serializer_snapshot(parse_type("void"))
    assert b"base.VoidSerializer$VoidSerializerSnapshot" in encode_serializer_snapshot(parse_type("row<a: void>"))


def test_an_old_simple_snapshot_is_read() -> None:
    writer = Writer()
    writer.utf("org.apache.flink.api.common.typeutils.base.LongSerializer$LongSerializerSnapshot")
    writer.i32(2)
    writer.utf("org.apache.flink.api.common.typeutils.base.LongSerializer")
    assert decode_serializer_snapshot(Reader(writer.getvalue(), "header")) == LONG


def test_unknown_or_damaged_snapshots_are_refused() -> None:
    raw = encode_serializer_snapshot(parse_type("tuple<long>"))
    cases = [
        (raw.replace(b"LongSerializer$Long", b"DarkSerializer$Dark"), UnsupportedError, "unknown-serializer"),
        (raw.replace(b"tuple.Tuple1", b"tuple.Tuple2"), CorruptStateError, "bad-serializer-snapshot"),
        (
            raw.replace(bytes.fromhex("000de704"), bytes.fromhex("000de705")),
            CorruptStateError,
            "bad-serializer-snapshot",
        ),
        (raw[:-4] + b"\0\0\0\x04", UnsupportedError, "serializer-version"),
        (raw[:-1], CorruptStateError, "truncated"),
    ]
    row = encode_serializer_snapshot(parse_type("row<a: long>"))
    kind = bytes.fromhex("000de7040000000401")
    assert kind in row
    cases.append((row.replace(kind, kind[:-1] + b"\0"), UnsupportedError, "row-without-kind"))
    listed = encode_serializer_snapshot(parse_type("list<long>"))
    one = bytes.fromhex("000000010000000100")
    assert listed.count(one) == 1
    two = listed.replace(one, bytes.fromhex("000000010000000200")) + listed[listed.index(one) + 8 :]
    cases.append((two, UnsupportedError, "unknown-serializer"))
    decimal = encode_serializer_snapshot(parse_type("sql<DECIMAL(38, 18)>"))
    digits = bytes.fromhex("0000002600000012")
    assert decimal.count(digits) == 1
    cases.append((decimal.replace(digits, bytes.fromhex("0000002700000012")), UnsupportedError, "logical-type"))
    for broken, error, word in cases:
        with pytest.raises(error) as caught:
            decode_serializer_snapshot(Reader(broken, "header"))
        assert caught.value.kind == word, broken
