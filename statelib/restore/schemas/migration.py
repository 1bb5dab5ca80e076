"""The migration of stored values to the wanted types, column by column. Keys are unchanged."""

from collections.abc import Callable

import pyarrow as pa

from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import ArrayOf, Decimal, ListOf, MapOf, Row, Scalar, StateType, Ttl, Tuple
from statelib.restore.schemas.compatibility import Evolving, evolving, field_origins
from statelib.restore.schemas.matching import changed
from statelib.serializers.columns.arrow import list_bounds, present, with_nulls
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import decode_values, encode_values
from statelib.serializers.registry import codec_of


def migration(stored: StateDescriptor, wanted: StateDescriptor) -> Callable[[StateRows], StateRows]:
    """Return a function that migrates serialized entries of the state ``stored`` to the state ``wanted``.

    The states must be compatible by :func:`~statelib.restore.schemas.compatibility.compare_states`."""
    is_list = wanted.kind is StateKind.LIST
    old = ListOf(stored.value_type) if is_list else stored.value_type
    new = ListOf(wanted.value_type) if is_list else wanted.value_type
    rule = evolving(stored, wanted)

    def migrate(rows: StateRows) -> StateRows:
        values = _convert(decode_values(stored, rows.values), old, new, rule)
        return StateRows(rows.keys, encode_values(wanted, values))

    return migrate


def converted(values: pa.Array, stored: StateType, wanted: StateType) -> pa.Array:
    """Return values of type ``stored`` as values of type ``wanted``, of whose Rows no field was renamed.

    Raise InvalidRequestError (``state-schema-changed``) if a BigDecimal of Flink does not fit the wanted type."""
    return _convert(values, stored, wanted, Evolving())


def _convert(values: pa.Array, stored: StateType, wanted: StateType, rule: Evolving) -> pa.Array:
    """Return values of type ``stored`` as values of type ``wanted``, in the same rows.

    Nulls remain null, and new fields are null. ``rule`` holds the earlier names of the fields of the outermost Row,
    whether it has a time to live or not, as for :func:`~statelib.restore.schemas.compatibility.field_origins`."""
    if stored == wanted:
        return values
    values_present, valid = present(values)
    if isinstance(stored, Ttl) and isinstance(wanted, Ttl):
        times, plain = values_present.flatten()
        columns = [times, _convert(plain, stored.value, wanted.value, rule)]
        converted = pa.StructArray.from_arrays(columns, fields=list(codec_of(wanted).arrow_type))
    else:
        converted = _convert_present(values_present, stored, wanted, rule)
    return with_nulls(converted, valid)


def _convert_present(values: pa.Array, stored: StateType, wanted: StateType, rule: Evolving) -> pa.Array:
    """Convert values of which none is null."""
    type_ = codec_of(wanted).arrow_type
    match stored, wanted:
        case Scalar(), Scalar():
            return values.cast(type_)
        case Scalar() | Decimal(), Decimal():
            return _decimals(values, stored, wanted)
        case (ArrayOf(old), ArrayOf(new)) | (ListOf(old), ListOf(new)):
            elements = _convert(values.values, old, new, rule.inner)
            return pa.ListArray.from_arrays(_bounds(values), elements, type=type_)
        case MapOf(), MapOf():
            keys = _keys(values.keys, stored.key, wanted.key)
            items = _convert(values.items, stored.value, wanted.value, rule.inner)
            return pa.MapArray.from_arrays(_bounds(values), keys, items, type=type_)
        case Tuple(), Tuple():
            pairs = zip(values.flatten(), stored.fields, wanted.fields, strict=True)
            return pa.StructArray.from_arrays([_convert(*pair, rule.inner) for pair in pairs], fields=list(type_))
        case Row(), Row():
            return pa.StructArray.from_arrays(_fields(values, stored, wanted, rule), fields=list(type_))
        case _:
            raise AssertionError(f"{stored} does not become {wanted}: the comparison refuses it")


def _keys(keys: pa.Array, stored: StateType, wanted: StateType) -> pa.Array:
    """Return the keys of maps, whose bytes are the same in both types, as keys of the wanted type."""
    if stored == wanted:
        return keys
    rows = codec_of(stored).encode(keys)
    return codec_of(wanted).decode(rows.data, rows.starts, rows.offsets[1:])[0]


def _decimals(values: pa.Array, stored: StateType, wanted: Decimal) -> pa.Array:
    """Raise InvalidRequestError (``state-schema-changed``) if a BigDecimal of Flink does not fit the wanted type."""
    try:
        return values.cast(codec_of(wanted).arrow_type)
    except pa.ArrowInvalid as error:
        raise changed(
            "a value", str(wanted), f"a {stored} that does not fit: {error}", "declare more digits or a larger scale"
        ) from error


def _fields(values: pa.StructArray, stored: Row, wanted: Row, rule: Evolving) -> list[pa.Array]:
    columns = values.flatten()
    return [
        pa.nulls(len(values), codec_of(field.type).arrow_type)
        if index is None
        else _convert(columns[index], stored.fields[index].type, field.type, rule.inner)
        for field, index in zip(wanted.fields, field_origins(stored, wanted, rule), strict=True)
    ]


def _bounds(values: pa.Array) -> pa.Array:
    return pa.array(list_bounds(values), pa.int32())
