"""Migrated values are what a plain Python function makes of the plain values, for any types and any change."""

from dataclasses import replace

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.model.state import FieldMeaning, StateDescriptor, StateKind
from statelib.model.types import (
    BYTE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    STRING,
    VOID,
    ArrayOf,
    Field,
    ListOf,
    MapOf,
    Row,
    StateType,
    Tuple,
)
from statelib.restore.schemas.compatibility import Compatibility, compare_states
from statelib.restore.schemas.matching import as_stored
from statelib.restore.schemas.migration import migration
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import decode_values, encode_values, value_arrow_type
from statelib.testing.reference.codecs import Plain, arrow
from statelib.testing.type_strategies import plain_values, state_types
from statelib.wire.ragged import from_list

ADDED = Row((Field("only here", STRING),))
WIDER = {BYTE: SHORT, SHORT: LONG, INT: LONG, FLOAT: DOUBLE}


def widened(type_: StateType) -> StateType:
    """Return the type with every number widened, except in keys."""
    match type_:
        case ArrayOf(element):
            return ArrayOf(WIDER.get(element, element))
        case ListOf(element):
            return ListOf(widened(element))
        case MapOf(key, value):
            return MapOf(key, widened(value))
        case Tuple(fields):
            return Tuple(tuple(map(widened, fields)))
        case Row(fields):
            return Row(tuple(Field(f.name, widened(f.type)) for f in fields))
        case _:
            return WIDER.get(type_, type_)


@st.composite
def changes(draw: st.DrawFn) -> tuple[StateDescriptor, StateDescriptor, list[int | None]]:
    """Draw (stored, wanted, for each wanted field the place of the stored one) for Rows with 1 to 5 fields."""
    types = draw(st.lists(state_types().filter(_may_go), min_size=1, max_size=5))
    old = Row(tuple(Field(f"old{i}", t) for i, t in enumerate(types)))
    kept_fields = draw(st.lists(st.sampled_from(range(len(types))), unique=True))
    origin: list[int | None] = [*kept_fields]
    fields = [Field(f"new{i}" if draw(st.booleans()) else f"old{i}", widened(types[i])) for i in kept_fields]
    if draw(st.booleans()) or not kept_fields:
        at = draw(st.integers(0, len(fields)))
        fields.insert(at, Field("added", ADDED))
        origin.insert(at, None)
    meanings = tuple(FieldMeaning(f.name, renamed_from=(f"old{i}",)) for f, i in zip(fields, origin, strict=True))
    stored = StateDescriptor("s", StateKind.VALUE, old)
    return stored, replace(stored, value_type=Row(tuple(fields)), meanings=meanings), origin


def _may_go(type_: StateType) -> bool:
    """Return whether a field of this type may be dropped beside the added one, without being taken for a rename."""
    return type_ != VOID and as_stored(type_) != as_stored(ADDED)


@settings(deadline=None)
@given(st.data(), changes())
def test_a_migrated_row_has_its_fields_at_their_new_places(
    data: st.DataObject, change: tuple[StateDescriptor, StateDescriptor, list[int | None]]
) -> None:
    stored, wanted, origin = change
    values: list[Plain] = data.draw(st.lists(plain_values(stored.value_type), max_size=5))
    assert Compatibility.INCOMPATIBLE not in {d.compatibility for d in compare_states(stored, wanted)}
    expected = [[None if at is None else value[at] for at in origin] for value in values]
    assert _migrated(stored, wanted, values) == _column(wanted, expected)


@settings(deadline=None)
@given(st.data(), state_types().filter(lambda t: t != VOID), st.sampled_from([StateKind.VALUE, StateKind.MAP]))
def test_widening_does_not_change_values(data: st.DataObject, type_: StateType, kind: StateKind) -> None:
    stored = StateDescriptor("s", kind, type_, STRING if kind is StateKind.MAP else None)
    wanted = replace(stored, value_type=widened(type_))
    some = plain_values(type_) if kind is StateKind.VALUE else st.one_of(st.none(), plain_values(type_))
    values: list[Plain] = data.draw(st.lists(some, max_size=5))
    assert Compatibility.INCOMPATIBLE not in {d.compatibility for d in compare_states(stored, wanted)}
    assert _migrated(stored, wanted, values) == _column(wanted, values)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=4), max_size=5))
def test_elements_of_a_list_state_are_widened(values: list[list[int]]) -> None:
    stored = StateDescriptor("s", StateKind.LIST, INT)
    migrated = _migrated(stored, replace(stored, value_type=LONG), values)
    assert migrated.to_pylist() == values
    assert migrated.type == pa.list_(pa.int64())


def _column(descriptor: StateDescriptor, values: list[Plain]) -> pa.Array:
    if descriptor.kind is StateKind.LIST:
        return pa.array(values, value_arrow_type(descriptor))
    return arrow(descriptor.value_type, values)


def _migrated(stored: StateDescriptor, wanted: StateDescriptor, values: list[Plain]) -> pa.Array:
    encoded = encode_values(stored, _column(stored, values))
    rows = StateRows(from_list([b"k"] * len(values)), encoded)
    migrated = migration(stored, wanted)(rows)
    assert migrated.keys.to_list() == rows.keys.to_list()
    decoded = decode_values(wanted, migrated.values)
    assert decoded.type == value_arrow_type(wanted)
    return decoded
