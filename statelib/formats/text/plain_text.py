"""Values of any state type as one line of text each, for people; typed JSON is for machines."""

import json
from decimal import Decimal

import pyarrow as pa


def texts(column: pa.Array) -> list[str]:
    """Return one text per row; '-' for null. Timestamps keep their nanoseconds, bytes are hexadecimal, rows show their
    names."""
    return ["-" if value is None else _text(value) for value in column.cast(readable(column.type)).to_pylist()]


def _text(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json.dumps(value, ensure_ascii=False, default=_other)


def _other(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.hex() if isinstance(value, bytes) else str(value)


def readable(kind: pa.DataType) -> pa.DataType:
    """Return ``kind`` with text in place of each type that Python holds less exactly, or cannot hold."""
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, readable(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(readable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(readable(kind.key_type), readable(kind.item_type))
    return kind
