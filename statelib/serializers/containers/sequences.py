"""byte[], primitive arrays, List and Map: an i32 count, then the elements.

Source: flink-formats.md sections 6.3 and 1.2.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from statelib.model.types import BYTES, ArrayOf, ListOf, MapOf, ObjectArray, Scalar, SetOf, Sql
from statelib.serializers.columns.arrow import (
    byte_array,
    byte_rows,
    list_bounds,
    map_column,
    nested_column,
    present,
    scalar_column,
    small_offsets,
    with_nulls,
)
from statelib.serializers.columns.codec import Codec, Cursor, Hashes
from statelib.serializers.columns.cursors import fixed, read_count, require, spread
from statelib.serializers.columns.elements import counted, strided
from statelib.serializers.columns.java_hashes import list_hash, no_key_hash, nulls_to_zero, row_sums, signed
from statelib.wire.ragged import Bytes, Offsets, Ragged, from_fixed, gather, join, offsets_of

_BINARY = pa.binary()


@dataclass(frozen=True)
class BytesCodec:
    """byte[]: a count and the bytes."""

    type: Scalar | Sql = BYTES
    arrow_type: pa.DataType = _BINARY
    width: int = -1
    reported_length: int = -1

    def encode(self, values: pa.Array) -> Ragged:
        rows = byte_rows(scalar_column(values, self.arrow_type, self.type))
        return join([fixed(rows.lengths.astype("i4")), rows])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        counts = read_count(data, cursor, limit, 1, self.type)
        return byte_array(gather(data, cursor + 4, counts), self.arrow_type), cursor + 4 + counts

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        return cursor + 4 + read_count(data, cursor, limit, 1, self.type)

    def java_hash(self, values: pa.Array) -> Hashes:  # noqa: ARG002
        raise no_key_hash(self.type)

    def deep_hash(self, values: pa.Array) -> Hashes:  # noqa: ARG002
        raise no_key_hash(self.type)


@dataclass(frozen=True)
class SequenceCodec:
    """A List, Set or array: the same bytes, but Java hashes an array by its identity."""

    type: ArrayOf | ListOf | ObjectArray | SetOf
    element: Codec
    width: int = -1
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.list_(self.element.arrow_type)

    def encode(self, values: pa.Array) -> Ragged:
        elements, offsets = self.elements(values)
        return join([fixed(np.diff(offsets).astype("i4")), _rows(self.element.encode(elements), offsets)])

    def elements(self, values: pa.Array) -> tuple[pa.Array, Offsets]:
        """All elements, row after row, and each row's share of them."""
        values = nested_column(values, self.arrow_type, self.type)
        bounds = list_bounds(values)
        return values.values.slice(bounds[0], bounds[-1] - bounds[0]), bounds - bounds[0]

    def from_elements(self, elements: pa.Array, offsets: Offsets) -> pa.Array:
        """The inverse of :meth:`elements`."""
        bounds = pa.array(small_offsets(offsets, self.type))
        return pa.ListArray.from_arrays(bounds, elements, type=self.arrow_type)

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        counts, starts, end = self.starts(data, cursor, limit)
        elements, _ = self.element.decode(data, starts, np.repeat(limit, counts))
        return self.from_elements(elements, offsets_of(counts)), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        if self.element.width > 0:
            counts = read_count(data, cursor, limit, self.element.width, self.type)
            return cursor + 4 + counts * self.element.width
        return self.starts(data, cursor, limit)[2]

    def java_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(partial(self._hash, deep=False), values))

    def deep_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(partial(self._hash, deep=True), values))

    def _hash(self, values: pa.Array, deep: bool) -> Hashes:
        if not isinstance(self.type, ListOf):
            raise no_key_hash(self.type)
        elements, offsets = self.elements(values)
        hashes = self.element.deep_hash(elements) if deep else self.element.java_hash(elements)
        return signed(list_hash(hashes.view(np.uint32), offsets))

    def starts(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[Cursor, Cursor, Cursor]:
        """Counts, starts of all elements, row after row, and the cursors behind the rows."""
        width = self.element.width
        counts = read_count(data, cursor, limit, max(width, 1), self.type)
        if width > 0:
            return counts, strided(cursor + 4, counts, width), cursor + 4 + counts * width
        return counts, *counted(self.element.skip, data, cursor + 4, limit, counts)


@dataclass(frozen=True)
class MapCodec:
    """Per entry the key, a byte that is 1 where the value is null, and the value where it is not."""

    type: MapOf
    key: Codec
    value: Codec
    width: int = -1
    reported_length: int = -1

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.map_(self.key.arrow_type, self.value.arrow_type)

    def encode(self, values: pa.Array) -> Ragged:
        keys, items, offsets = self._entries(values)
        entries = join([self.key.encode(keys), encode_flagged(self.value, items)])
        return join([fixed(np.diff(offsets).astype("i4")), _rows(entries, offsets)])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        counts, starts, end = self.starts(data, cursor, limit)
        limits = np.repeat(limit, counts)
        keys, at = self.key.decode(data, starts, limits)
        items, _ = decode_flagged(self.value, data, at, limits)
        return map_column(offsets_of(counts), keys, items, self.arrow_type, self.type), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        return self.starts(data, cursor, limit)[2]

    def java_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(partial(self._hash, deep=False), values))

    def deep_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(partial(self._hash, deep=True), values))

    def _hash(self, values: pa.Array, deep: bool) -> Hashes:
        keys, items, offsets = self._entries(values)
        key_hash = self.key.deep_hash(keys) if deep else self.key.java_hash(keys)
        value_hash = self.value.deep_hash(items) if deep else self.value.java_hash(items)
        total = row_sums((key_hash ^ value_hash).view(np.uint32), offsets)
        return signed(total + np.uint32(1) if deep else total)

    def _entries(self, values: pa.Array) -> tuple[pa.Array, pa.Array, Offsets]:
        values = nested_column(values, self.arrow_type, self.type)
        bounds = list_bounds(values)
        first, size = bounds[0], bounds[-1] - bounds[0]
        return values.keys.slice(first, size), values.items.slice(first, size), bounds - first

    def starts(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[Cursor, Cursor, Cursor]:
        """Counts, starts of all entries, row after row, and the cursors behind the rows."""
        counts = read_count(data, cursor, limit, max(self.key.width, 1) + 1, self.type)
        return counts, *counted(self._skip_entry, data, cursor + 4, limit, counts)

    def _skip_entry(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        at = self.key.skip(data, cursor, limit)
        require(at, 1, limit, self.value.type)
        valid = data[at] == 0
        at = at + 1
        at[valid] = self.value.skip(data, at[valid], limit[valid])
        return at


def encode_flagged(codec: Codec, values: pa.Array) -> Ragged:
    """A byte that is 1 where the value is null, then the value where it is not."""
    kept, valid = present(values)
    return join([from_fixed((~valid).astype(np.uint8).reshape(-1, 1)), spread(codec.encode(kept), valid)])


def decode_flagged(codec: Codec, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
    """The inverse of :func:`encode_flagged`."""
    require(cursor, 1, limit, codec.type)
    valid = data[cursor] == 0
    at = cursor + 1
    values, at[valid] = codec.decode(data, at[valid], limit[valid])
    return with_nulls(values, valid), at


def _rows(elements: Ragged, offsets: Offsets) -> Ragged:
    """Elements brought together by row: their bytes lie one after the other already."""
    return Ragged(elements.data, elements.offsets[offsets])
