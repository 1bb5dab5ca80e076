"""Logical types of fixed width: numbers, BOOLEAN, DATE, TIME and intervals. A value lies in its slot.

Source: docs/spec/formats.md#sql-types, #binary-rows.
"""

import struct

import numpy as np
import pyarrow as pa

from statelib.model.sql import LogicalType
from statelib.model.types import Sql
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.columns.arrow import number_array, numbers, scalar_column
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.scalars.numbers import float_json
from statelib.serializers.sql.values.json_slots import Region
from statelib.serializers.sql.values.logical_support import LogicalSupport, LogicalTypes, no_columns
from statelib.serializers.sql.values.slots import Spans, Written, only_slots
from statelib.wire.reader import Reader

_FIXED: dict[str, tuple[str, pa.DataType, str, str]] = {
    "TINYINT": ("<i1", pa.int8(), "b", "byte"),
    "SMALLINT": ("<i2", pa.int16(), "h", "short"),
    "INTEGER": ("<i4", pa.int32(), "i", "int"),
    "BIGINT": ("<i8", pa.int64(), "q", "long"),
    "FLOAT": ("<f4", pa.float32(), "f", "float"),
    "DOUBLE": ("<f8", pa.float64(), "d", "double"),
    "DATE": ("<i4", pa.date32(), "i", "int"),
    "TIME_WITHOUT_TIME_ZONE": ("<i4", pa.time32("ms"), "i", "int"),
    "INTERVAL_YEAR_MONTH": ("<i4", pa.int32(), "i", "int"),
    "INTERVAL_DAY_TIME": ("<i8", pa.duration("ms"), "q", "long"),
    "BOOLEAN": ("<u1", pa.bool_(), "?", "boolean"),
}
"""Per root the number in a slot for numpy, the type of the column, and for typed JSON the number in a slot for struct
and the type of the Java value."""


def _arrow_type(type_: LogicalType, _types: LogicalTypes) -> pa.DataType:
    return _FIXED[type_.root][1]


def _slot_bytes(type_: LogicalType) -> int:
    return np.dtype(_FIXED[type_.root][0]).itemsize


def _read_slots(type_: LogicalType, spans: Spans, at: Cursor, _types: LogicalTypes) -> pa.Array:
    layout, arrow_type, _, _ = _FIXED[type_.root]
    slots = spans.numbers(at, layout, type_)
    return pa.array(slots != 0) if type_.root == "BOOLEAN" else number_array(slots, arrow_type)


def _write_slots(type_: LogicalType, values: pa.Array, _types: LogicalTypes) -> Written:
    layout, arrow_type, _, _ = _FIXED[type_.root]
    column = scalar_column(values, arrow_type, Sql(type_))
    return only_slots(numbers(column.cast(pa.uint8()) if type_.root == "BOOLEAN" else column, layout))


def _slot_json(type_: LogicalType, region: Region, at: int, _types: LogicalTypes) -> Json:
    return _json(type_, bytes(region.bytes_at(at, _slot_bytes(type_)))[::-1])


def _read_json(type_: LogicalType, reader: Reader, _types: LogicalTypes) -> Json:
    return _json(type_, bytes(reader.take(_slot_bytes(type_))))


def _json(type_: LogicalType, big_endian: bytes) -> Json:
    _, _, layout, name = _FIXED[type_.root]
    if name in ("float", "double"):
        return float_json(">" + layout, big_endian)
    (value,) = struct.unpack(">" + layout, big_endian)
    return {"type": name, "v": value}


FIXED = LogicalSupport(
    tuple(_FIXED), _arrow_type, _slot_bytes, _read_slots, _write_slots, _slot_json, no_columns, _read_json
)
