"""Entries that are made of tables: which columns must be there, and which fields their structs must have."""

import pyarrow as pa
import pytest

from statelib.errors import StatelibError
from statelib.model.state import EVENT_TIMERS, KeyedStateSchema, StateDescriptor, StateKind, timers_descriptor
from statelib.model.types import STRING, VOID
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
    assert encoded("pojo<a.Empty;>", key=pa.array(["a", "b"])) == [b"\x02", b"\x02"]
