"""Types that only a Flink job brings along: columns there and back, and the same values one at a time."""

from contextlib import suppress
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.errors import CorruptStateError, InvalidRequestError, StatelibError, UnsupportedError
from statelib.model.types import Opaque, StateType
from statelib.serializers.registry import codec_of
from statelib.serializers.scalars.float_text import java_text
from statelib.serializers.snapshots import decode_serializer_snapshot, encode_serializer_snapshot
from statelib.serializers.temporal.dates import date_text
from statelib.serializers.type_text import parse_type
from statelib.serializers.typed_json import json_reader
from statelib.wire.ragged import from_list
from statelib.wire.reader import Reader
from tests.support.extent import examples

PERSON = "pojo<a.Person; age: int, home: pojo<a.Home; city: string>, kind: enum<a.Kind; ONE, TWO>>"
SAMPLES: dict[str, list[object]] = {
    "char": [0, 65, 65535],
    "bigint": ["0", "1", "10", "-1", "127", "128", "-128", "-129", str(2**200), str(-(2**200))],
    "bigdecimal": ["0", "0.00", "1.10", "-12345678901234567890.123", "1E+5"],
    "javadate": [0, -1, 1_700_000_000_000],
    "sqltimestamp": [0, -1, 1_700_000_000_123_456_789],
    "array<string>": [[], ["a", None, "日本"]],
    "objects<java.lang.Long; long>": [[], [1, None, -3]],
    "set<string>": [[], ["a", "b"]],
    "nullable<long>": [1, None, -1],
    "nullable<long; 8>": [None, 7],
    "either<string, long>": [{"left": "x", "right": None}, {"left": None, "right": 4}],
    PERSON: [{"age": 1, "home": {"city": None}, "kind": "TWO"}, {"age": 2, "home": None, "kind": None}, None],
    "opaque<a.Serializer>": [b"", b"\x00\x01"],
    "rowdata<f0: BIGINT, f1: VARCHAR(20), f2: DECIMAL(10, 2), f3: DECIMAL(38, 3), f4: TIMESTAMP(3), f5: BOOLEAN>": [
        {"f0": 1, "f1": "seven..", "f2": 100, "f3": 5, "f4": 0, "f5": True},
        {"f0": None, "f1": "eight...", "f2": None, "f3": None, "f4": None, "f5": None},
        {"f0": -1, "f1": "", "f2": -1, "f3": -1, "f4": -1, "f5": False},
    ],
}


def column(type_: StateType, values: list[object]) -> pa.Array:
    return pa.array(values, codec_of(type_).arrow_type)


@pytest.mark.parametrize("text", SAMPLES)
def test_columns_are_read_back_from_between_other_bytes(text: str) -> None:
    type_ = parse_type(text)
    codec, values = codec_of(type_), column(parse_type(text), SAMPLES[text])
    written = codec.encode(values).to_list()
    rows = from_list([b"before", *written])
    cursor, limit = rows.starts[1:], rows.offsets[2:]
    result, end = codec.decode(rows.data, cursor, limit)
    result.validate(full=True)
    assert result.equals(values)
    assert end.tolist() == codec.skip(rows.data, cursor, limit).tolist() == limit.tolist()
    assert str(type_) == text
    if codec.width > 0:
        assert {len(row) for row in written} == {codec.width}


@pytest.mark.parametrize("text", SAMPLES)
def test_the_reader_of_single_values_reads_all_bytes_that_columns_write(text: str) -> None:
    type_ = parse_type(text)
    for row, value in zip(codec_of(type_).encode(column(type_, SAMPLES[text])).to_list(), SAMPLES[text], strict=True):
        reader = Reader(row, text)
        assert (json_reader(type_)(reader) == {"type": "null"}) == (value is None)
        assert reader.remaining == 0


@pytest.mark.parametrize("text", [text for text in SAMPLES if not text.startswith("opaque")])
def test_both_readers_refuse_a_truncated_value(text: str) -> None:
    type_ = parse_type(text)
    for row in codec_of(type_).encode(column(type_, SAMPLES[text])).to_list():
        rows = from_list([row])
        with pytest.raises(CorruptStateError):
            codec_of(type_).decode(rows.data, rows.starts, rows.offsets[1:] - 1)
        with pytest.raises(CorruptStateError):
            json_reader(type_)(Reader(row[:-1], text))


@pytest.mark.parametrize("text", [text for text in SAMPLES if not text.startswith("opaque")])
def test_snapshots_are_read_back(text: str) -> None:
    type_ = parse_type(text)
    reader = Reader(encode_serializer_snapshot(type_), text)
    assert decode_serializer_snapshot(reader) == type_
    assert reader.remaining == 0


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.binary(max_size=40))
def test_any_bytes_give_a_value_or_a_typed_error(text: str, raw: bytes) -> None:
    type_, rows = parse_type(text), from_list([raw])
    for read in (
        lambda: json_reader(type_)(Reader(raw, text)),
        lambda: codec_of(type_).decode(rows.data, rows.starts, rows.offsets[1:]),
    ):
        with suppress(StatelibError):
            read()


@pytest.mark.parametrize(
    ("values", "kind"), [(["THREE"], "bad-enum"), ([None], "null-value")], ids=["no constant", "null"]
)
def test_an_enum_accepts_only_its_constants(values: list[object], kind: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        codec_of(parse_type("enum<a.Kind; ONE, TWO>")).encode(pa.array(values, pa.string()))
    assert caught.value.kind == kind


def test_an_enum_index_beyond_the_constants_is_refused() -> None:
    with pytest.raises(CorruptStateError) as caught:
        json_reader(parse_type("enum<a.Kind; ONE>"))(Reader(b"\0\0\0\1", "value"))
    assert caught.value.kind == "bad-enum"


def test_a_value_of_a_subclass_has_json_but_no_column() -> None:
    type_ = parse_type("pojo<a.Base; f: int; +pojo<a.Sub; f: int, g: string>; -pojo<a.Other; f: int>>")
    registered = b"\x08\x00" + b"\x02" + b"\0\0\0\0\7" + b"\0\2a"
    seen = b"\x04\x00\x07a.Other" + b"\x02" + b"\0\0\0\0\1"
    assert json_reader(type_)(Reader(registered, "v"))["class"] == "a.Sub"
    assert json_reader(type_)(Reader(seen, "v"))["v"] == {"f": {"type": "int", "v": 1}}
    rows = from_list([registered])
    with pytest.raises(UnsupportedError) as caught:
        codec_of(type_).decode(rows.data, rows.starts, rows.offsets[1:])
    assert caught.value.kind == "pojo-subclass"


def test_hash_codes_are_those_of_java() -> None:
    """Values of ``hashCode()`` as a JVM gives them."""
    big = codec_of(parse_type("bigint")).java_hash(
        pa.array(["0", "1", "-1", "4294967296", "1267650600228229401496703205376"])
    )
    assert big.tolist() == [0, 1, -1, 31, 29791 * 16]
    decimal = codec_of(parse_type("bigdecimal")).java_hash(pa.array(["1.0", "1.00", "-5"]))
    assert decimal.tolist() == [31 * 10 + 1, 31 * 100 + 2, -155]
    row = parse_type("rowdata<f0: BIGINT>")
    assert codec_of(row).java_hash(pa.array([{"f0": 42}], codec_of(row).arrow_type)).tolist() == [907821237]


def test_floats_and_dates_have_the_text_that_java_writes() -> None:
    shown = [java_text(v) for v in (1.0, 100.0, 1e7, 1e-3, 9.999e-4, 5e-324, 1.7976931348623157e308, -0.0, 123456.789)]
    assert shown == [
        "1.0",
        "100.0",
        "1.0E7",
        "0.001",
        "9.999E-4",
        "4.9E-324",
        "1.7976931348623157E308",
        "-0.0",
        "123456.789",
    ]
    assert java_text(float(np.float32(0.1)), single=True) == "0.1"
    assert [date_text(d) for d in (0, -1, 11_016, -719_529, 2_932_897)] == [
        "1970-01-01", "1969-12-31", "2000-02-29", "-0001-12-31", "+10000-01-01",
    ]  # fmt: skip


def test_an_opaque_type_is_written_back_unchanged() -> None:
    whole = b"\x00\x01x\x00\x00\x00\x02payload"
    assert encode_serializer_snapshot(Opaque("a.S", "b.C", whole)) == whole
    with pytest.raises(UnsupportedError) as caught:
        encode_serializer_snapshot(Opaque("a.S", "b.C"))
    assert caught.value.kind == "opaque-without-snapshot"


def test_a_big_decimal_has_the_bytes_of_a_decimal_of_its_scale() -> None:
    """Flink finds a key of a RocksDB backend by its bytes: the unscaled numbers 0, 1 and 10 are a length alone."""
    for text in ("0.00", "0.01", "0.10", "-0.01", "1.00", "12.34", "99.99"):
        big = codec_of(parse_type("bigdecimal")).encode(pa.array([text]))
        fixed = codec_of(parse_type("decimal(4, 2)")).encode(pa.array([Decimal(text)], pa.decimal128(4, 2)))
        assert big.to_list() == fixed.to_list()
    assert codec_of(parse_type("bigdecimal")).encode(pa.array(["0.10"])).to_list() == [b"\0\0\0\3\0\0\0\2"]


@pytest.mark.parametrize("text", ["1E+99999999999", "1E-2147483648", "NaN", "Infinity", "1E+99999999999999999999", "a"])
def test_texts_that_are_no_bigdecimal_are_refused(text: str) -> None:
    with pytest.raises(StatelibError, match="expected a number") as caught:
        codec_of(parse_type("bigdecimal")).encode(pa.array([text]))
    assert caught.value.kind == "bad-value"
