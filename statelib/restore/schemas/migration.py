"""Stored values rewritten as the values that are wanted now: column by column, keys untouched."""

from collections.abc import Callable

import pyarrow as pa

from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import ArrayOf, ListOf, MapOf, Row, Scalar, StateType, Tuple
from statelib.restore.schemas.compatibility import EarlierNames, evolving, field_origins
from statelib.serializers.columns import list_bounds, present, with_nulls
from statelib.serializers.registry import codec_of
from statelib.serializers.rows import StateRows
from statelib.serializers.values import decode_values, encode_values


def migration(found: StateDescriptor, wanted: StateDescriptor) -> Callable[[StateRows], StateRows]:
    """What turns serialized entries of ``found`` into those of ``wanted``; only for states that
    :func:`~statelib.restore.schemas.compatibility.compare_states` calls compatible."""
    listed = wanted.kind is StateKind.LIST
    old = ListOf(found.value_type) if listed else found.value_type
    new = ListOf(wanted.value_type) if listed else wanted.value_type
    earlier = evolving(wanted).earlier

    def migrate(rows: StateRows) -> StateRows:
        values = _convert(decode_values(found, rows.values), old, new, earlier)
        return StateRows(rows.keys, encode_values(wanted, values))

    return migrate


def _convert(values: pa.Array, found: StateType, wanted: StateType, earlier: EarlierNames) -> pa.Array:
    """Values of type ``found`` as values of type ``wanted``, row for row: nulls stay, new fields are null.

    ``earlier``: see :func:`~statelib.restore.schemas.compatibility.field_origins`; for the outermost Row only."""
    if found == wanted:
        return values
    kept, valid = present(values)
    return with_nulls(_converted(kept, found, wanted, earlier), valid)


def _converted(values: pa.Array, found: StateType, wanted: StateType, earlier: EarlierNames) -> pa.Array:
    """As :func:`_convert`, of values that are not null themselves."""
    type_ = codec_of(wanted).arrow_type
    match found, wanted:
        case Scalar(), Scalar():
            return values.cast(type_)
        case (ArrayOf(old), ArrayOf(new)) | (ListOf(old), ListOf(new)):
            elements = _convert(values.values, old, new, {})
            return pa.ListArray.from_arrays(_bounds(values), elements, type=type_)
        case MapOf(), MapOf():
            items = _convert(values.items, found.value, wanted.value, {})
            return pa.MapArray.from_arrays(_bounds(values), values.keys, items, type=type_)
        case Tuple(), Tuple():
            pairs = zip(values.flatten(), found.fields, wanted.fields, strict=True)
            return pa.StructArray.from_arrays([_convert(*pair, {}) for pair in pairs], fields=list(type_))
        case Row(), Row():
            return pa.StructArray.from_arrays(_fields(values, found, wanted, earlier), fields=list(type_))
        case _:
            raise AssertionError(f"{found} does not become {wanted}: the comparison refuses it")


def _fields(values: pa.StructArray, found: Row, wanted: Row, earlier: EarlierNames) -> list[pa.Array]:
    columns = values.flatten()
    return [
        pa.nulls(len(values), codec_of(field.type).arrow_type)
        if at is None
        else _convert(columns[at], found.fields[at].type, field.type, {})
        for field, at in zip(wanted.fields, field_origins(found, wanted, earlier), strict=True)
    ]


def _bounds(values: pa.Array) -> pa.Array:
    return pa.array(list_bounds(values), pa.int32())
