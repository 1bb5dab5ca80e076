"""Entries that are made of tables: which columns must be there, and which fields their structs must have."""

from decimal import Decimal

import pyarrow as pa
import pytest

from statelib.errors import StatelibError
from statelib.model.state import EVENT_TIMERS, KeyedStateSchema, StateDescriptor, StateKind, timers_descriptor
from statelib.model.types import STRING, VOID, Pojo
from statelib.serializers.entries.encoding import encode_entries
from statelib.serializers.type_text import parse_type


def encoded(value_type: str, **columns: pa.Array) -> list[bytes]:
    """Return the values of the entries of a value state whose keys are texts."""
    descriptor = StateDescriptor("s", StateKind.VALUE, parse_type(value_type))
    rows = encode_entries(KeyedStateSchema(STRING, 128, (descriptor,)), descriptor, pa.table(columns))
    return rows.values.to_list()


def test_a_table_without_the_column_of_values_is_refused() -> None:
    """Keys and values are of one type here: the keys must not be taken for values."""
    with pytest.raises(StatelibError, match="expected key, value") as caught:
        encoded("string", key=pa.array(["a", "b"]))
    assert caught.value.kind == "bad-column"


def test_a_table_of_timers_needs_no_column_of_values() -> None:
    timers = timers_descriptor(EVENT_TIMERS, "t", VOID)
    table = pa.table({"key": pa.array(["a"]), "timestamp": pa.array([7], pa.timestamp("ms", "UTC"))})
    rows = encode_entries(KeyedStateSchema(STRING, 128, (timers,)), timers, table)
    assert rows.values.to_list() == [b""]


def test_values_without_fields_need_no_column_because_parquet_cannot_store_one() -> None:
    empty = str(Pojo("a.Empty", ()))
    assert encoded(empty, key=pa.array(["a", "b"])) == [b"\x02", b"\x02"]


ROW = "row<flights: long, last: row<dest: string, at: long>>"


def test_fields_of_structs_are_matched_by_name_in_any_order() -> None:
    key = pa.array(["a"])
    right = pa.array([{"flights": 3, "last": {"dest": "JFK", "at": 1}}])
    swapped = pa.array([{"last": {"at": 1, "dest": "JFK"}, "flights": 3}])
    assert encoded(ROW, key=key, value=swapped) == encoded(ROW, key=key, value=right)


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        ({"flights": 3}, "field last"),
        ({"flights": 3, "last": {"dest": "JFK", "at": 1}, "more": 1}, "field more"),
        ({"flights": 3, "last": {"destination": "JFK", "at": 1}}, "fields dest, destination"),
    ],
)
def test_a_struct_with_other_fields_is_refused_rather_than_filled_with_nulls(value: dict, fields: str) -> None:
    for type_, cell in ((ROW, value), (f"list<{ROW}>", [value]), (f"map<string, {ROW}>", value)):
        column = pa.array([cell])
        if type_.startswith("map"):
            column = pa.array([[("k", cell)]], pa.map_(pa.string(), column.type))
        with pytest.raises(StatelibError, match=f"only one of them has the {fields}$") as caught:
            encoded(type_, key=pa.array(["a"]), value=column)
        assert caught.value.kind == "bad-value-type"


NOON = pa.array([43_200_000], pa.timestamp("ms"))
IN_UTC = NOON.cast(pa.timestamp("ms", "UTC"))


@pytest.mark.parametrize(
    ("type_", "values", "problem"),
    [
        ("instant", NOON, "a time without a zone is no instant"),
        ("date", NOON, r"timestamp\[ms\] is not converted to date32\[day\]"),
        ("instant", pa.array([43_200]), "int64 is not converted to timestamp"),
        ("long", pa.array(["12"]), "string is not converted to int64"),
        ("long", pa.array(["12"]).dictionary_encode(), "string is not converted to int64"),
        ("boolean", pa.array([12]), "int64 is not converted to bool"),
        ("row<at: instant>", pa.array([{"at": NOON[0]}]), "a time without a zone is no instant"),
        ("list<long>", pa.array([["12"]]), "string is not converted to int64"),
        ("map<string, long>", pa.array([[(True, 12)]], pa.map_(pa.bool_(), pa.int64())), "bool is not converted"),
    ],
)
def test_a_value_is_not_converted_to_a_type_in_which_it_means_something_else(
    type_: str, values: pa.Array, problem: str
) -> None:
    with pytest.raises(StatelibError, match=problem) as caught:
        encoded(type_, key=pa.array(["a"]), value=values)
    assert caught.value.kind == "bad-value-type"


@pytest.mark.parametrize(
    ("type_", "values", "same"),
    [
        ("long", pa.array([12], pa.int16()), pa.array([12])),
        ("double", pa.array([12]), pa.array([12.0])),
        ("datetime", NOON.cast(pa.timestamp("us")), NOON),
        ("datetime", IN_UTC, NOON),
        ("string", pa.array(["x"], pa.large_string()), pa.array(["x"])),
        ("bigdecimal", pa.array([Decimal("1.50")]), pa.array(["1.50"])),
        ("list<long>", pa.array([[]]), pa.array([[]], pa.list_(pa.int64()))),
    ],
)
def test_a_value_is_converted_within_its_kind(type_: str, values: pa.Array, same: pa.Array) -> None:
    key = pa.array(["a"])
    assert encoded(type_, key=key, value=values) == encoded(type_, key=key, value=same)
