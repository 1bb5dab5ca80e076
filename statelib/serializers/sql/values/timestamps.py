"""TIMESTAMP, with and without a local time zone: milliseconds and, of a finer type, nanoseconds of the millisecond.

If the type has up to three digits of a second, the slot contains the milliseconds. If it is finer, the slot contains
the nanoseconds and the offset of the milliseconds.

Source: docs/spec/formats.md#sql-types, #binary-rows.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import UnsupportedError
from statelib.model.sql import LogicalType
from statelib.model.types import Sql
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.columns.arrow import number_array, numbers, scalar_column
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import read_unsigned, require
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.serializers.sql.values.json_slots import Region
from statelib.serializers.sql.values.logical_support import LogicalSupport, LogicalTypes, eight_bytes
from statelib.serializers.sql.values.slots import Spans, Written, only_slots, padded
from statelib.serializers.temporal.datetimes import datetime_json
from statelib.wire.ragged import Bytes, Ragged, from_fixed
from statelib.wire.reader import Reader

_ZONES = {"TIMESTAMP_WITHOUT_TIME_ZONE": None, "TIMESTAMP_WITH_LOCAL_TIME_ZONE": "UTC"}
_MILLIS_DIGITS, _MILLIS_BYTES = 3, 8
_MILLI_NS = 1_000_000


@dataclass(frozen=True)
class TimestampCodec(Unkeyed):
    """The codec of timestamps outside of rows: an i64 of milliseconds and, of a finer type, an i32 of nanoseconds. Keys
    of SQL are rows, so no such value is hashed."""

    type: Sql
    types: LogicalTypes = field(repr=False)
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        return self.types.arrow_of(self.type.type)

    @property
    def width(self) -> int:
        return 12 if self._fine else 8

    @property
    def _fine(self) -> bool:
        return not _is_compact(self.type.type)

    def encode(self, values: pa.Array) -> Ragged:
        column = scalar_column(values, self.arrow_type, self.type)
        slots, millis = self.types.write_slots(self.type.type, column)
        if not self._fine:
            return from_fixed(slots[:, ::-1])
        return from_fixed(np.hstack([millis.data.reshape(-1, 8)[:, ::-1], slots[:, 3::-1]]))

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        millis = read_unsigned(data, cursor, 8, "i8").astype(np.int64)
        nanos = read_unsigned(data, cursor + 8, 4, "u4") if self._fine else np.zeros(len(cursor), np.uint32)
        return _column(self.type.type, millis, nanos.astype(np.int64)), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:  # noqa: ARG002
        require(cursor, self.width, limit, self.type)
        return cursor + self.width


def _is_compact(type_: LogicalType) -> bool:
    return type_.parameters[0] <= _MILLIS_DIGITS


def _arrow_of(type_: LogicalType) -> pa.DataType:
    return pa.timestamp("ms" if _is_compact(type_) else "ns", _ZONES[type_.root])


def _read_slots(type_: LogicalType, spans: Spans, at: Cursor, _types: LogicalTypes) -> pa.Array:
    if _is_compact(type_):
        return number_array(spans.numbers(at, "<i8", type_), _arrow_of(type_))
    slot = spans.numbers(at, "<u8", type_).astype(np.uint64)
    millis_at = spans.start + (slot >> np.uint64(32)).astype(np.int64)
    millis = spans.numbers(millis_at, "<i8", type_).astype(np.int64)
    return _column(type_, millis, (slot & np.uint64(0xFFFFFFFF)).astype(np.int64))


def _column(type_: LogicalType, millis: npt.NDArray[np.int64], nanos: npt.NDArray[np.int64]) -> pa.Array:
    """Return a column of milliseconds and nanoseconds of the millisecond. Its unit is that of the type.

    Raise UnsupportedError (``time-out-of-range``)."""
    if _is_compact(type_):
        return number_array(millis, _arrow_of(type_))
    ticks = millis * _MILLI_NS + nanos
    if (ticks // _MILLI_NS != millis).any():
        raise UnsupportedError(f"{Sql(type_)}: outside the years that columns can hold", kind="time-out-of-range")
    return number_array(ticks, _arrow_of(type_))


def _write_slots(type_: LogicalType, values: pa.Array, _types: LogicalTypes) -> Written:
    ticks = numbers(scalar_column(values, _arrow_of(type_), Sql(type_)), "i8").astype(np.int64)
    if _is_compact(type_):
        return only_slots(ticks)
    return padded(ticks % _MILLI_NS), from_fixed(padded(ticks // _MILLI_NS))


def _slot_json(type_: LogicalType, region: Region, at: int, _types: LogicalTypes) -> Json:
    slot, nanos, start = region.slot(at)
    if _is_compact(type_):
        return datetime_json(int.from_bytes(slot, "little", signed=True), 0)
    return datetime_json(int.from_bytes(region.part(start, 8), "little", signed=True), nanos)


def _read_json(type_: LogicalType, reader: Reader, _types: LogicalTypes) -> Json:
    return datetime_json(reader.i64(), 0 if _is_compact(type_) else reader.i32())


TIMESTAMPS = LogicalSupport(
    tuple(_ZONES),
    lambda type_, _types: _arrow_of(type_),
    eight_bytes,
    _read_slots,
    _write_slots,
    _slot_json,
    TimestampCodec,
    _read_json,
    reserved_bytes=lambda type_: 0 if _is_compact(type_) else _MILLIS_BYTES,
)
