"""Bytes and hash codes that are known from Flink and Java, and what Flink may store but statelib never writes."""

import re

import numpy as np
import pyarrow as pa
import pytest

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.serializers.registry import codec_of
from statelib.serializers.scalars import strings
from statelib.serializers.type_text import parse_type
from statelib.testing.reference import codecs as reference
from statelib.wire.ragged import from_list


def decode(text: str, *raw: str) -> pa.Array:
    rows = from_list([bytes.fromhex(r) for r in raw])
    values, end = codec_of(parse_type(text)).decode(rows.data, rows.starts, rows.offsets[1:])
    assert end.tolist() == rows.offsets[1:].tolist()
    values.validate(full=True)
    return values


BYTES_OF = [
    ("string", "", "01"), ("string", "a", "0261"), ("string", "é", "02e901"), ("string", "日", "02e5cb01"),
    ("string", "😀", "03bdb00380bc03"), ("string", "x" * 200, "c901" + "78" * 200), ("string", "\u4000", "02808001"),
    ("boolean", True, "01"), ("byte", -1, "ff"), ("short", -2, "fffe"), ("long", 2**63 - 1, "7f" + "ff" * 7),
    ("double", -0.0, "80" + "00" * 7), ("bytes", b"\0,", "00000002002c"), ("void", None, "00"),
    ("date", 19782, "000007e8021d"), ("date", -1, "000007b10c1f"), ("time", 3_723_000_000_004, "01020300000004"),
    ("datetime", -1, "000007b10c1f173b3b3b9ac9ff"), ("instant", -1, "ffffffffffffffff3b9ac9ff"),
    ("array<int>", [1, -1], "0000000200000001ffffffff"), ("list<string>", ["", "a"], "00000002010261"),
    ("map<string, long>", [("a", None)], "00000001026101"), ("tuple<byte, string>", [5, "a"], "050261"),
    ("row<a: long, b: byte>", [None, 7], "2007"), ("row<a: byte, b: byte>", [7, None], "1007"),
    ("row<a: void, b: void, c: void, d: void, e: void, f: void, g: byte>", [None] * 6 + [1], "3f0001"),
    ("list<void>", [None, None], "000000020000"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "raw"), BYTES_OF)
def test_each_value_has_the_bytes_that_flink_writes(text: str, value: reference.Plain, raw: str) -> None:
    type_ = parse_type(text)
    column = reference.arrow(type_, [value])
    assert codec_of(type_).encode(column).to_list() == [bytes.fromhex(raw)]
    assert decode(text, raw).equals(column)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("boolean", True, 1231), ("boolean", False, 1237), ("byte", -3, -3), ("short", -3, -3),
        ("int", 2**31 - 1, 2**31 - 1),
        ("long", -1, 0), ("long", 2**32 + 1, 0), ("float", 1.0, 0x3F800000), ("float", float("nan"), 0x7FC00000),
        ("double", 1.0, 1072693248), ("double", 0.0, 0), ("double", -0.0, -(2**31)),
        ("double", float("nan"), 2146959360),
        ("string", "", 0), ("string", "hello", 99162322), ("string", "é", 233), ("string", "😀", 1772899),
        ("string", "Aa", 2112), ("string", "BB", 2112),
        ("row<k: int>", [5], 67), ("row<k: string>", [None], 31), ("row<k: list<int>>", [[]], 32),
        ("row<k: list<int>>", [None], 31),
        ("tuple<int, int>", [1, 2], 33), ("list<int>", [], 1), ("list<int>", [1, 2], 994),
        ("map<int, int>", [(1, 2), (4, 8)], 15),
        ("row<m: map<int, int>>", [[(1, 2)]], 31 + 1 + (32 ^ 33)), ("date", 0, 1970 & 0xFFFFF800 ^ (1970 << 11) + 65),
        ("time", 2**32, 1), ("instant", 1_000_000_002, 103),
    ],
)  # fmt: skip
def test_each_value_has_the_hash_code_of_java(text: str, value: reference.Plain, expected: int) -> None:
    type_ = parse_type(text)
    assert codec_of(type_).java_hash(reference.arrow(type_, [value])).tolist() == [expected]


@pytest.mark.parametrize("text", ["bytes", "void", "array<long>", "tuple<int, bytes>", "row<a: array<int>>"])
def test_types_that_flink_refuses_as_keys_have_no_hash(text: str) -> None:
    type_ = parse_type(text)
    value = (
        [[1], b"x"]
        if text.startswith("tuple")
        else [1]
        if text.startswith("array")
        else [[1]]
        if "row" in text
        else None
    )
    value = [1, b"x"] if text.startswith("tuple") else b"x" if text == "bytes" else value
    with pytest.raises(UnsupportedError) as caught:
        codec_of(type_).java_hash(reference.arrow(type_, [value]))
    assert caught.value.kind == "no-key-hash"


@pytest.mark.parametrize("bits", ["7ff8000000000001", "fff0000000000001", "7ff0dead0000beef"])
def test_the_bits_of_a_nan_are_preserved(bits: str) -> None:
    values = decode("double", bits)
    assert codec_of(parse_type("double")).encode(values).to_list() == [bytes.fromhex(bits)]
    assert codec_of(parse_type("double")).java_hash(values).tolist() == [2146959360]


@pytest.mark.parametrize(
    ("text", "null", "other", "value"),
    [
        ("string", "00", "0261", "a"),
        ("date", "800000008000", "000007b20101", 0),
        ("time", "80000000000000", "00000000000001", 1),
        ("instant", "800000000000000080000000", "000000000000000000000003", 3),
        ("datetime", "80000000800080000000000000", "000007b2010100000000000001", 1),
    ],
)
def test_every_form_of_null_in_flink_is_read_as_null(text: str, null: str, other: str, value: reference.Plain) -> None:
    assert decode(text, other, null, other).equals(reference.arrow(parse_type(text), [value, None, value]))


@pytest.mark.parametrize(
    ("text", "raw", "kind"),
    [
        ("date", "000007b20001", "bad-date"), ("date", "000007b20d01", "bad-date"),
        ("date", "000007b2021d", "bad-date"),
        ("date", "000007b20100", "bad-date"), ("time", "18000000000000", "bad-time"),
        ("time", "003c0000000000", "bad-time"),
        ("time", "0000003b9aca00", "bad-time"), ("instant", "00000000000000003b9aca00", "bad-instant"),
        ("void", "01", "bad-void"),
        ("bytes", "ffffffff", "bad-length"), ("list<int>", "7fffffff00000000", "truncated-value"),
        ("string", "ffffffffffff01", "bad-length"),
        ("string", "ffffffff0f61", "truncated-value"), ("string", "0280808001", "bad-string"),
        ("string", "02ffff07", "bad-string"),
        ("list<list<int>>", "7fffffff00000000", "truncated-value"), ("map<int, int>", "40000000", "truncated-value"),
    ],
)  # fmt: skip
def test_each_kind_of_damage_has_its_error(text: str, raw: str, kind: str) -> None:
    with pytest.raises(CorruptStateError) as caught:
        decode(text, raw)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("text", "raw", "kind"),
    [
        ("string", "02bdb003", "lone-surrogate"), ("string", "0280bc03", "lone-surrogate"),
        ("list<string>", "0000000202bdb0030280bc03", "lone-surrogate"), ("string", "0380bc03bdb003", "lone-surrogate"),
        ("row<a: byte>", "8001", "row-kind"), ("row<a: byte>", "4001", "row-kind"),
        ("instant", "000000ffffffffff00000000", "time-out-of-range"), ("date", "7fffffff0101", "time-out-of-range"),
    ],
)  # fmt: skip
def test_values_that_arrow_cannot_hold_are_refused_by_name(text: str, raw: str, kind: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        decode(text, raw)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("mask", "kind"), [("80", "UPDATE_BEFORE (-U)"), ("40", "UPDATE_AFTER (+U)"), ("c0", "DELETE")]
)
def test_the_error_names_a_row_of_another_kind(mask: str, kind: str) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(f"in row 1: expected RowKind INSERT (+I), found {kind}")):
        decode("row<a: byte>", "0001", f"{mask}01")


def test_long_columns_are_processed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strings, "_CHUNK_BYTES", 7)
    texts = ["", "abc", "é" * 9, "", "日本", "x" * 30, "😀", "", ""]
    column = pa.array(["zz", *texts]).slice(1)
    codec = codec_of(parse_type("string"))
    rows = codec.encode(column)
    assert rows.to_list() == [reference.encode(codec.type, t) for t in texts]
    assert codec.java_hash(column).tolist() == [reference.java_hash(codec.type, t) for t in texts]
    assert codec.decode(rows.data, rows.starts, rows.offsets[1:])[0].equals(column)


def test_rows_of_a_slice_are_decoded() -> None:
    rows = codec_of(parse_type("long")).encode(pa.array(np.arange(5))).slice(2, 4)
    codec = codec_of(parse_type("long"))
    assert codec.decode(rows.data, rows.starts, rows.offsets[1:])[0].to_pylist() == [2, 3]
