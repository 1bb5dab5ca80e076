"""Strings: StringValue, a count of UTF-16 units plus one and then the units, both variable-length.

Columns of ASCII, where a unit is the byte itself, take a path without any decoding.

Source: flink-formats.md sections 6.2.1 and 1.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.model.types import STRING, Scalar
from statelib.serializers.columns.arrow import byte_array, byte_rows, scalar_column, with_nulls
from statelib.serializers.columns.codec import Cursor, Hashes
from statelib.serializers.columns.cursors import encode_varlen, read_varlen, require
from statelib.serializers.columns.java_hashes import field_hash, nulls_to_zero, polynomial, signed
from statelib.serializers.scalars.utf16 import decode_units, encode_units, is_ascii, units_of, utf8_of
from statelib.wire.ragged import Bytes, Ragged, concat, gather, join, offsets_of

_STRING = pa.string()
_CHUNK_BYTES = 1 << 20
"""Rows are worked on in chunks of about this size: the intermediate arrays are some 40 times as large."""


@dataclass(frozen=True)
class StringCodec:
    type: Scalar = STRING
    arrow_type: pa.DataType = _STRING
    width: int = -1
    reported_length: int = -1
    own_null: bool = True
    """Whether a length of 0 is a null, and that of a text one more than it has units."""

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
    """The rows in slices of about ``_CHUNK_BYTES``, at least one row each."""
    marks = np.arange(rows.offsets[0] + _CHUNK_BYTES, rows.offsets[-1], _CHUNK_BYTES)
    cuts = np.unique(np.concatenate([[0], np.searchsorted(rows.offsets, marks), [len(rows)]]))
    for start, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        yield rows.slice(start, stop)


def _wide_rows(rows: Ragged) -> npt.NDArray[np.intp]:
    """The rows that hold a byte of 0x80 or more, that is a unit of more than one byte."""
    if is_ascii(rows.data):
        return np.empty(0, np.intp)
    return np.flatnonzero(np.diff(offsets_of((rows.data >= 0x80).view(np.uint8))[rows.offsets]))
