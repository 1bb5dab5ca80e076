"""Strings: a count of UTF-16 units and the units, all as variable-length numbers.

A ``string`` stores one more than its count, and 0 for null. Flink's StringValue stores the count itself. Columns of
ASCII, in which each unit is one byte, are encoded and decoded without any conversion.

Source: docs/spec/formats.md#strings, #hash-codes-of-keys.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import CorruptStateError
from statelib.model.types import STRING, STRING_VALUE, Scalar
from statelib.serializers.aspects.json_values import NULL, Json
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH, combined, plain_scalar
from statelib.serializers.aspects.snapshot_payloads import SnapshotSupport, never_written, plain_class, plain_snapshot
from statelib.serializers.aspects.steps import Step, StepsOf
from statelib.serializers.aspects.type_support import scalar_support
from statelib.serializers.columns.arrow import byte_array, byte_rows, scalar_column, with_nulls
from statelib.serializers.columns.codec import Cursor, Hashes
from statelib.serializers.columns.cursors import encode_varlen, read_varlen, require
from statelib.serializers.columns.java_hashes import field_hash, nulls_to_zero, polynomial, signed
from statelib.serializers.scalars.utf16 import decode_units, encode_units, is_ascii, units_of, utf8_of
from statelib.wire.ragged import Bytes, Ragged, concat, gather, join, offsets_of
from statelib.wire.reader import Reader

_STRING = pa.string()
_CHUNK_BYTES = 1 << 20
"""The size in bytes of the chunks in which rows are handled: the intermediate arrays are some 40 times as large."""


@dataclass(frozen=True)
class StringCodec:
    """The codec of strings. ``own_null``: the stored number is one more than the count, and 0 is a null."""

    type: Scalar = STRING
    arrow_type: pa.DataType = _STRING
    width: int = -1
    reported_length: int = -1
    own_null: bool = True

    def encode(self, values: pa.Array) -> Ragged:
        rows = byte_rows(scalar_column(values, self.arrow_type, self.type))
        return concat([_encode(part, int(self.own_null)) for part in _chunks(rows)])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        length, start = read_varlen(data, cursor, limit, self.type)
        counts = np.maximum(length - self.own_null, 0)
        require(start, counts, limit, self.type)
        rows, end = self._decode_utf8(data, start, counts, limit)
        present = length >= self.own_null
        values = byte_array(rows, self.arrow_type)
        if present.all():
            return values, end
        return with_nulls(values.filter(pa.array(present)), present), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        length, start = read_varlen(data, cursor, limit, self.type)
        counts = np.maximum(length - self.own_null, 0)
        require(start, counts, limit, self.type)
        wide = _wide_rows(gather(data, start, counts))
        end = start + counts
        if len(wide):
            end[wide] = decode_units(data, start[wide], counts[wide], limit[wide])[1]
        return end

    def steps(self, _steps_of: StepsOf) -> list[Step]:
        return [_skip_string if self.own_null else _skip_string_value]

    def java_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(self._hash, values))

    def deep_hash(self, values: pa.Array) -> Hashes:
        return field_hash(values, self.java_hash(values))

    def _hash(self, values: pa.Array) -> Hashes:
        rows = byte_rows(scalar_column(values, self.arrow_type, self.type))
        parts = [polynomial(*units_of(part)) for part in _chunks(rows)]
        return signed(np.concatenate([np.zeros(0, np.uint32), *parts]))

    def _decode_utf8(self, data: Bytes, start: Cursor, counts: Cursor, limit: Cursor) -> tuple[Ragged, Cursor]:
        plain, end = gather(data, start, counts), start + counts
        wide = _wide_rows(plain)
        if not len(wide):
            return plain, end
        units, end[wide] = decode_units(data, start[wide], counts[wide], limit[wide])
        decoded = utf8_of(units, offsets_of(counts[wide]))
        order = np.arange(len(counts))
        order[wide] = len(counts) + np.arange(len(wide))
        return concat([plain, decoded]).take(order), end


def _encode(rows: Ragged, more: int) -> Ragged:
    if is_ascii(rows.data[rows.offsets[0] : rows.offsets[-1]]):
        return join([encode_varlen(rows.lengths + more, 7, 0x80), rows])
    units, offsets = units_of(rows)
    return join([encode_varlen(np.diff(offsets) + more, 7, 0x80), encode_units(units, offsets)])


def _chunks(rows: Ragged) -> Iterator[Ragged]:
    """Yield the rows in slices of about ``_CHUNK_BYTES`` bytes, with at least one row each."""
    marks = np.arange(rows.offsets[0] + _CHUNK_BYTES, rows.offsets[-1], _CHUNK_BYTES)
    cuts = np.unique(np.concatenate([[0], np.searchsorted(rows.offsets, marks), [len(rows)]]))
    for start, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        yield rows.slice(start, stop)


def _wide_rows(rows: Ragged) -> npt.NDArray[np.intp]:
    """Return the rows that hold a byte of 0x80 or more, which is part of a unit of several bytes."""
    if is_ascii(rows.data):
        return np.empty(0, np.intp)
    return np.flatnonzero(np.diff(offsets_of((rows.data >= 0x80).view(np.uint8))[rows.offsets]))


def _skip_string(raw: bytes, at: int) -> int:
    size = raw[at]
    at += 1
    if size >= 0x80:
        size, at = _rest_of_number(raw, at, size & 0x7F)
    if size < 2:
        return at
    end = at + size - 1
    return end if raw[at:end].isascii() else _skip_units(raw, at, size - 1)


def _skip_string_value(raw: bytes, at: int) -> int:
    size = raw[at]
    at += 1
    if size >= 0x80:
        size, at = _rest_of_number(raw, at, size & 0x7F)
    if size == 0:
        return at
    return at + size if raw[at : at + size].isascii() else _skip_units(raw, at, size)


def _rest_of_number(raw: bytes, at: int, value: int) -> tuple[int, int]:
    """Return a number whose first seven bits are ``value``, and the offset after it."""
    shift = 7
    while raw[at] >= 0x80 and shift < 35:
        value |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | (raw[at] << shift), at + 1


def _skip_units(raw: bytes, at: int, count: int) -> int:
    """Return the offset after ``count`` units. Each has at most three bytes, and only its last one is below 0x80."""
    window = np.frombuffer(raw, np.uint8, max(min(3 * count, len(raw) - at), 0), at)
    return at + int(np.flatnonzero(window < 0x80)[count - 1]) + 1


def _read_string(reader: Reader) -> Json:
    length = _read_number(reader)
    return {"type": "string", "v": _read_units(reader, length - 1)} if length else NULL


def _read_string_value(reader: Reader) -> Json:
    return {"type": "string", "v": _read_units(reader, _read_number(reader))}


def _read_number(reader: Reader) -> int:
    value = shift = 0
    while True:
        byte = reader.u8()
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
        if shift > 28:
            raise CorruptStateError(
                f"{reader.what} at offset {reader.offset}: expected a length of at most 5 bytes", kind="bad-length"
            )


def _read_units(reader: Reader, count: int) -> str:
    """Return a text of ``count`` units. Unlike a column it may hold a lone surrogate."""
    if count > reader.remaining:
        raise CorruptStateError(
            f"{reader.what} at offset {reader.offset}: expected {count} units, found {reader.remaining} bytes",
            kind="bad-length",
        )
    start, first = reader.offset, bytes(reader.take(count))
    if first.isascii():  # each unit is one byte
        return first.decode("ascii")
    reader.offset = start
    units = [_read_number(reader) for _ in range(count)]
    if max(units, default=0) > 0xFFFF:
        raise CorruptStateError(
            f"{reader.what} before offset {reader.offset}: expected units of at most 16 bits", kind="bad-string"
        )
    return struct.pack(f">{len(units)}H", *units).decode("utf-16-be", "surrogatepass")


def _plain_text(value: Any) -> int:
    data = value.as_buffer().to_pybytes().decode("utf-8", "surrogatepass").encode("utf-16-be", "surrogatepass")
    return combined((unit for (unit,) in struct.iter_unpack(">H", data)), 0)


STRINGS = (
    scalar_support(
        StringCodec(), _read_string, plain_snapshot(STRING, plain_class("StringSerializer")), plain_scalar(_plain_text)
    ),
    scalar_support(
        StringCodec(STRING_VALUE, own_null=False), _read_string_value, SnapshotSupport(never_written), NO_PLAIN_HASH
    ),
)
