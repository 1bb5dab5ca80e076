"""The Arrow types that a table of Iceberg has, and those of a state that it stores as them."""

import pyarrow as pa
import pyarrow.types as kinds

_LONGS = (pa.int64(), pa.uint32())


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns as Iceberg stores them. Raises pyarrow.ArrowNotImplementedError for a type without a
    counterpart."""
    return pa.schema([_stored_field(field) for field in schema])


def described(schema: pa.Schema) -> list[str]:
    """Return the columns of a table as text, without the ids of their fields."""
    return [f"{field.name}: {field.type}" for field in stored_schema(schema)]


def _stored_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _stored(field.type))


def _stored(type_: pa.DataType) -> pa.DataType:
    if kinds.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    if kinds.is_map(type_):
        return pa.map_(_stored(type_.key_type), _stored(type_.item_type))
    if kinds.is_list(type_) or kinds.is_large_list(type_):
        return pa.list_(_stored(type_.value_type))
    if kinds.is_struct(type_):
        return pa.struct([_stored_field(field) for field in type_])
    if kinds.is_time(type_):
        return pa.time64("us")
    return _stored_number(type_)


def _stored_number(type_: pa.DataType) -> pa.DataType:
    if kinds.is_integer(type_) and type_ != pa.uint64():
        return pa.int64() if type_ in _LONGS else pa.int32()
    if kinds.is_string(type_) or kinds.is_large_string(type_):
        return pa.string()
    if kinds.is_binary(type_) or kinds.is_large_binary(type_):
        return pa.binary()
    if type_ in (pa.float32(), pa.float64(), pa.bool_(), pa.date32()) or kinds.is_decimal128(type_):
        return type_
    raise pa.ArrowNotImplementedError(f"Iceberg has no type for {type_}")
