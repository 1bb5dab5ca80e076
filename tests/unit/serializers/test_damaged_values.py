"""Values, types and Java objects that fuzzing found. Each is now a typed error or is read correctly."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statelib.errors import CorruptStateError, InvalidRequestError, StatelibError, UnsupportedError
from statelib.model.types import LONG, ListOf, MapOf, Opaque, Pojo, Scalar, Sql
from statelib.serializers.registry import codec_of
from statelib.serializers.skippers import skipper_of
from statelib.serializers.sql.logical_types import read_logical_type
from statelib.serializers.type_text import parse_type
from statelib.serializers.typed_json import json_reader
from statelib.wire.java_objects import JavaClass, JavaObject, list_items, read_object
from statelib.wire.ragged import from_list
from statelib.wire.reader import Reader
from tests.fuzz.sql_samples import array, entries, number, numbers, row, sized, text

_PACKAGE = "org.apache.flink.table.types.logical."


def decoded(type_text: str, value: bytes) -> pa.Array:
    rows = from_list([value])
    return codec_of(parse_type(type_text)).decode(rows.data, rows.starts, rows.offsets[1:])[0]


def shown(type_text: str, value: bytes) -> dict[str, Any]:
    return json_reader(parse_type(type_text))(Reader(value, "value"))


def refused(type_text: str, value: bytes, kind: str) -> None:
    """Assert that columns and typed JSON both refuse the value."""
    for read in (decoded, shown):
        with pytest.raises(StatelibError) as caught:
            read(type_text, value)
        assert caught.value.kind == kind


def test_a_short_text_has_seven_bytes_at_most() -> None:
    slot = bytes(7) + b"\xff"
    refused("rowdata<a: VARCHAR(9)>", sized(row(slot)), "bad-binary-row")


def test_values_of_a_binary_row_that_share_bytes_are_refused() -> None:
    long = text("more than seven bytes" * 40)
    inner = array(long)
    slot = inner[8:16]
    shared = number(40, 4) + number(0, 8) + slot * 40
    shift = len(shared) - 16  # This is the place of the slots' text after the change.
    slots = number((int.from_bytes(slot[4:], "little") + shift) << 32 | len(long)) * 40
    data = number(40, 4) + number(0, 8) + slots + inner[16:]
    refused("rowdata<a: ARRAY<VARCHAR(999)>>", sized(row(data)), "bad-binary-row")


def test_a_map_with_different_numbers_of_keys_and_values_is_refused() -> None:
    refused("rowdata<a: MAP<INT, INT>>", sized(row(entries(numbers(1, 2), numbers(1)))), "bad-binary-row")


def test_a_column_of_maps_refuses_a_null_key() -> None:
    value = sized(row(entries(array(None), array(number(1)))))
    with pytest.raises(UnsupportedError) as caught:
        decoded("rowdata<a: MAP<VARCHAR(9), BIGINT>>", value)
    assert caught.value.kind == "null-map-key"
    assert shown("rowdata<a: MAP<VARCHAR(9), BIGINT>>", value)["v"][0]["v"][0][0] == {"type": "null"}


def test_a_decimal_with_more_digits_than_its_type_is_refused() -> None:
    with pytest.raises(CorruptStateError) as caught:
        decoded("rowdata<a: DECIMAL(3, 0)>", sized(row(number(1000))))
    assert caught.value.kind == "bad-binary-row"


@pytest.mark.parametrize("name", ["INT", "BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR(9)", "TIMESTAMP(3)", "DECIMAL(9, 0)"])
def test_sql_rows_whose_field_is_null_everywhere_can_be_written(name: str) -> None:
    codec = codec_of(parse_type(f"rowdata<a: {name}>"))
    values = pa.array([{"a": None}], codec.arrow_type)
    assert codec.encode(values).to_list() == [sized(row(None))]


@pytest.mark.parametrize("name", ["DECIMAL", "DECIMAL(0, 0)", "DECIMAL(39, 0)", "DECIMAL(5, 6)", "TIMESTAMP(10)"])
def test_invalid_parameters_of_sql_types_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="expected"):
        parse_type(f"rowdata<a: {name}>")


@pytest.mark.parametrize("padding", ["x", "-1", "9" * 5000, "٣"])
def test_a_padding_that_is_too_large_is_refused(padding: str) -> None:
    with pytest.raises(InvalidRequestError, match="expected the size of a padding"):
        parse_type(f"nullable<long; {padding}>")


def test_numbers_with_thousands_of_digits_have_text() -> None:
    value = 7**9000  # The number has more than 4300 digits, Python's own limit.
    raw = value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
    stored = (len(raw) + 4).to_bytes(4, "big") + raw
    (result,) = decoded("bigint", stored).to_pylist()
    assert result == shown("bigint", stored)["v"]
    assert codec_of(parse_type("bigint")).encode(pa.array([result])).to_list() == [stored]
    (scaled,) = decoded("bigdecimal", stored + bytes(4)).to_pylist()
    assert scaled == result


def test_numbers_that_would_take_minutes_to_write_are_refused() -> None:
    raw = b"\x01" * 100_000
    refused("bigint", (len(raw) + 4).to_bytes(4, "big") + raw, "number-too-large")


def test_objects_without_fields_differ_from_null() -> None:
    rows = from_list([b"\x02", b"\x01"])
    values, _ = codec_of(Pojo("A", ())).decode(rows.data, rows.starts, rows.offsets[1:])
    assert values.to_pylist() == [{}, None]


def test_a_null_key_of_a_java_map_is_refused() -> None:
    value = bytes.fromhex("00000001" + "00" + "00" + "0000000000000007")
    rows = from_list([value])
    codec = codec_of(MapOf(Scalar("string"), LONG))
    with pytest.raises(UnsupportedError) as caught:
        codec.decode(rows.data, rows.starts, rows.offsets[1:])
    assert caught.value.kind == "null-map-key"


def test_a_count_larger_than_the_remaining_bytes_is_not_iterated() -> None:
    """Elements of an unknown serializer take no bytes at the end: four billion of them would take hours."""
    jump = skipper_of([codec_of(ListOf(Opaque("Kryo", "A")))])
    with pytest.raises(IndexError):
        jump(b"\xff\xff\xff\xff" + bytes(20), 0)


def _class(name: str, *fields: tuple[str, str, str]) -> JavaClass:
    return JavaClass(_PACKAGE + name, 1, 2, fields)


def read(decoded: JavaObject, monkeypatch: pytest.MonkeyPatch) -> Sql:
    monkeypatch.setattr("statelib.serializers.sql.logical_types.read_object", lambda _: decoded)
    return Sql(read_logical_type(Reader(b"", "header")))


def test_a_logical_type_within_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = JavaObject(_class("ArrayType"))
    endless.values["elementType"] = endless
    with pytest.raises(UnsupportedError, match="64 deep"):
        read(endless, monkeypatch)


def test_too_many_logical_types_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result = JavaObject(_class("IntType"))
    for _ in range(60):
        result = JavaObject(_class("MapType"), {"keyType": result, "valueType": result})
    with pytest.raises(UnsupportedError, match="at most 10000 logical types"):
        read(result, monkeypatch)


def test_java_objects_that_are_no_lists_have_no_elements() -> None:
    around = JavaObject(JavaClass("java.util.Collections$UnmodifiableList", 1, 2, ()))
    around.values["list"] = around
    assert list_items(around) is None
    assert list_items(JavaObject(JavaClass("java.util.Arrays$ArrayList", 1, 2, ()), {"a": 7})) is None


def test_wrong_offsets_in_a_row_are_refused() -> None:
    value = bytearray(sized(row(number(1), text("more than seven"))))
    value[4 + 8 + 8 : 4 + 8 + 16] = np.array([0xFFFFFFFF_FFFFFF7F], "<u8").tobytes()[::-1]
    with pytest.raises(StatelibError):
        decoded("rowdata<a: BIGINT, b: VARCHAR(99)>", bytes(value))


def test_a_duration_in_java_block_data_is_read() -> None:
    """A Duration in the form in which the configuration of a state's time to live contains it."""
    head = "aced00057372000d6a6176612e74696d652e536572955d84ba1b2248b20c00007870"
    reader = Reader(bytes.fromhex(head + "770d0100000000000151800000000078"), "duration")
    result = read_object(reader)
    assert reader.remaining == 0
    assert result.written == {"java.time.Ser": [bytes.fromhex("01000000000001518000000000")]}
