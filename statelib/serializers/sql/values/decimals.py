"""DECIMAL: an unscaled number. Up to 18 digits lie in the slot as a long, more lie after the slots as big-endian bytes.

Outside of rows, up to 18 digits are an i64; more are an i32 size and the bytes.

Source: docs/spec/formats.md#sql-types, #binary-rows.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from statelib.errors import CorruptStateError
from statelib.model.sql import LogicalType
from statelib.model.types import Sql
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.columns.arrow import scalar_column
from statelib.serializers.columns.codec import Codec, Cursor
from statelib.serializers.columns.cursors import fixed, read_count, require
from statelib.serializers.columns.decimal_words import (
    DECIMAL_BYTES,
    Words,
    big_endian_bytes,
    decimal_array,
    decimal_words,
    shortest_sizes,
    words_of_bytes,
)
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.serializers.scalars.big_numbers import decimal_json
from statelib.serializers.sql.values.json_slots import Region
from statelib.serializers.sql.values.logical_support import LogicalSupport, LogicalTypes, eight_bytes
from statelib.serializers.sql.values.slots import Spans, Written, only_slots, padded
from statelib.wire.ragged import Bytes, Ragged, from_fixed, gather, join
from statelib.wire.reader import Reader

_COMPACT_DIGITS = 18


@dataclass(frozen=True)
class _DecimalCodec(Unkeyed):
    """The base of codecs of decimals outside of rows. Keys of SQL are rows, so no such value is hashed."""

    type: Sql
    types: LogicalTypes = field(repr=False)
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        return self.types.arrow_of(self.type.type)

    def slots(self, values: pa.Array) -> Written:
        """Return the slots of the values, as a row holds them."""
        return self.types.write_slots(self.type.type, scalar_column(values, self.arrow_type, self.type))


@dataclass(frozen=True)
class SmallDecimalCodec(_DecimalCodec):
    """The codec of decimals of up to 18 digits."""

    width: int = 8

    def encode(self, values: pa.Array) -> Ragged:
        return from_fixed(self.slots(values)[0][:, ::-1])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        return _from_digits(self.type.type, data, cursor, end), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:  # noqa: ARG002
        require(cursor, self.width, limit, self.type)
        return cursor + self.width


@dataclass(frozen=True)
class DecimalCodec(_DecimalCodec):
    """The codec of decimals of more than 18 digits."""

    width: int = -1

    def encode(self, values: pa.Array) -> Ragged:
        slots, digits = self.slots(values)
        sizes = np.ascontiguousarray(slots).view("<u8").reshape(-1).astype(np.int64)
        return join([fixed(sizes.astype("i4")), gather(digits.data, digits.starts, sizes)])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        return _from_digits(self.type.type, data, cursor + 4, end), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        return cursor + 4 + read_count(data, cursor, limit, 1, self.type)


def _is_compact(type_: LogicalType) -> bool:
    return type_.parameters[0] <= _COMPACT_DIGITS


def _arrow_type(type_: LogicalType, _types: LogicalTypes) -> pa.DataType:
    return pa.decimal128(*type_.parameters)


def _codec(type_: Sql, types: LogicalTypes) -> Codec:
    return SmallDecimalCodec(type_, types) if _is_compact(type_.type) else DecimalCodec(type_, types)


def _read_slots(type_: LogicalType, spans: Spans, at: Cursor, _types: LogicalTypes) -> pa.Array:
    if _is_compact(type_):
        low = spans.numbers(at, "<i8", type_).astype(np.int64)
        return _checked(type_, np.ascontiguousarray(np.stack([low, low >> 63], axis=1)))
    return _from_digits(type_, spans.data, *spans.outside(at, type_))


def _from_digits(type_: LogicalType, data: Bytes, start: Cursor, end: Cursor) -> pa.Array:
    """Return a column of the big-endian unscaled numbers ``data[start:end]``."""
    return _checked(type_, words_of_bytes(data, start, end - start, Sql(type_), "bad-binary-row"))


def _checked(type_: LogicalType, words: Words) -> pa.Array:
    """Return the unscaled numbers as a column.

    Raise CorruptStateError (``bad-binary-row``) if a number has more digits than the type."""
    try:
        return decimal_array(words, pa.decimal128(*type_.parameters))
    except pa.ArrowInvalid as error:
        raise CorruptStateError(f"{Sql(type_)}: {error}", kind="bad-binary-row") from error


def _write_slots(type_: LogicalType, values: pa.Array, types: LogicalTypes) -> Written:
    words = decimal_words(values.cast(types.arrow_of(type_)))
    if _is_compact(type_):
        return only_slots(words[:, 0].copy())
    sizes, big_endian = shortest_sizes(words), big_endian_bytes(words)
    table = np.zeros((len(words), DECIMAL_BYTES), np.uint8)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        table[rows, :size] = big_endian[rows, DECIMAL_BYTES - size :]
    return padded(sizes), from_fixed(table)


def _slot_json(type_: LogicalType, region: Region, at: int, _types: LogicalTypes) -> Json:
    slot, size, start = region.slot(at)
    if _is_compact(type_):
        return decimal_json(int.from_bytes(slot, "little", signed=True), type_.parameters[1])
    return decimal_json(int.from_bytes(region.part(start, size), "big", signed=True), type_.parameters[1])


def _read_json(type_: LogicalType, reader: Reader, _types: LogicalTypes) -> Json:
    raw = reader.take(8 if _is_compact(type_) else reader.count())
    return decimal_json(int.from_bytes(raw, "big", signed=True), type_.parameters[1])


DECIMALS = LogicalSupport(
    ("DECIMAL",),
    _arrow_type,
    eight_bytes,
    _read_slots,
    _write_slots,
    _slot_json,
    _codec,
    _read_json,
    reserved_bytes=lambda type_: 0 if _is_compact(type_) else DECIMAL_BYTES,
)
