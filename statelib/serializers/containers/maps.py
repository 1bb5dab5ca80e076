"""``java.util.Map``: an i32 count, then per entry the key, a flag that is 1 if the value is null, and the value if not.

Source: docs/spec/formats.md#containers, #hash-codes-of-keys.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from statelib.model.types import MapOf
from statelib.serializers.aspects.json_values import Json, ReaderOf, ReadJson, read_flagged, text_order
from statelib.serializers.aspects.plain_hashing import MASK, PlainHash, PlainHasher
from statelib.serializers.aspects.snapshot_payloads import BASE, composite_snapshot
from statelib.serializers.aspects.steps import Step, StepsOf, chain, counted_elements, flagged
from statelib.serializers.aspects.type_support import TypeSupport, no_last_part
from statelib.serializers.columns.arrow import list_bounds, map_column, nested_column, present, with_nulls
from statelib.serializers.columns.codec import Codec, Cursor, Hashes
from statelib.serializers.columns.cursors import fixed, read_count, require, spread
from statelib.serializers.columns.elements import counted
from statelib.serializers.columns.java_hashes import nulls_to_zero, row_sums, signed
from statelib.serializers.containers.sequence_codec import rows_of_elements
from statelib.wire.ragged import Bytes, Offsets, Ragged, from_fixed, join, offsets_of
from statelib.wire.reader import Reader


@dataclass(frozen=True)
class MapCodec:
    """The codec of a count and that many entries."""

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
        return join([fixed(np.diff(offsets).astype("i4")), rows_of_elements(entries, offsets)])

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        counts, starts, end = self.starts(data, cursor, limit)
        limits = np.repeat(limit, counts)
        keys, at = self.key.decode(data, starts, limits)
        items, _ = decode_flagged(self.value, data, at, limits)
        return map_column(offsets_of(counts), keys, items, self.arrow_type, self.type), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:
        return self.starts(data, cursor, limit)[2]

    def steps(self, steps_of: StepsOf) -> list[Step]:
        value = flagged(chain(steps_of(self.value)))
        return [counted_elements(chain([*steps_of(self.key), value]))]

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
        """Return all keys and all values, row after row, and the offsets at which each row's share begins."""
        values = nested_column(values, self.arrow_type, self.type)
        bounds = list_bounds(values)
        first, size = bounds[0], bounds[-1] - bounds[0]
        return values.keys.slice(first, size), values.items.slice(first, size), bounds - first

    def starts(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[Cursor, Cursor, Cursor]:
        """Return the counts, the starts of all entries, row after row, and the cursors after the rows."""
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
    """Return per value a byte that is 1 if it is null, and the value if it is not."""
    without_nulls, valid = present(values)
    return join([from_fixed((~valid).astype(np.uint8).reshape(-1, 1)), spread(codec.encode(without_nulls), valid)])


def decode_flagged(codec: Codec, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
    """Read a flag and a value at each cursor. This is the inverse of :func:`encode_flagged`."""
    require(cursor, 1, limit, codec.type)
    valid = data[cursor] == 0
    at = cursor + 1
    values, at[valid] = codec.decode(data, at[valid], limit[valid])
    return with_nulls(values, valid), at


def _json_reader(type_: MapOf, reader_of: ReaderOf) -> ReadJson:
    return partial(_read_json, reader_of(type_.key), partial(read_flagged, True, reader_of(type_.value)))


def _read_json(key: ReadJson, value: ReadJson, reader: Reader) -> Json:
    """Read a map. Entries are sorted by their text, because a Java map has no order of its own."""
    pairs = [[key(reader), value(reader)] for _ in range(reader.count(1))]
    return {"type": "map", "v": sorted(pairs, key=text_order)}


def _plain_hash(type_: MapOf, value: Any, hasher: PlainHasher) -> int:
    pairs = ((pair["key"], pair["value"]) for pair in value.values)
    return 1 + sum(hasher.in_row(type_.key, k) ^ hasher.in_row(type_.value, v) for k, v in pairs) & MASK


MAPS = TypeSupport(
    of=MapOf,
    codec=lambda type_, codec_of: MapCodec(type_, codec_of(type_.key), codec_of(type_.value)),
    json_reader=_json_reader,
    snapshot=composite_snapshot(BASE + "MapSerializerSnapshot", 1, 2, MapOf, lambda type_: [type_.key, type_.value]),
    plain_hash=PlainHash(in_row=_plain_hash),
    last_parts=no_last_part,
)
