"""ARRAY: a count, null bits, one slot per element, and the bytes that slots refer to.

Source: docs/spec/formats.md#binary-rows.
"""

import numpy as np
import pyarrow as pa

from statelib.model.sql import LogicalType
from statelib.model.types import Sql
from statelib.serializers.aspects.json_values import NULL, Json
from statelib.serializers.columns.arrow import list_bounds, nested_column, present, small_offsets
from statelib.serializers.columns.codec import Codec
from statelib.serializers.columns.cursors import refuse, spread
from statelib.serializers.columns.elements import strided
from statelib.serializers.sql.values.json_slots import Region
from statelib.serializers.sql.values.logical_support import LogicalTypes, span_support
from statelib.serializers.sql.values.sized_codec import SizedCodec
from statelib.serializers.sql.values.slots import Spans, little_endian, moved
from statelib.wire.ragged import Offsets, Ragged, join, offsets_of

_COUNT_BYTES = 4


def read_arrays(element: LogicalType, spans: Spans, types: LogicalTypes) -> tuple[pa.Array, Offsets]:
    """Read one array per span. Return all elements, array after array, and the offsets at which each share begins.

    Raise CorruptStateError (``bad-binary-row``)."""
    counts = spans.numbers(spans.start, "<i4", element).astype(np.int64)
    width = types.of(element).slot_bytes(element)
    first = spans.start + _head_bytes(counts)
    refuse(counts < 0, counts, Sql(element), "a count of 0 or more", "bad-binary-row")
    spans.check(first, counts * width, element)
    owners = np.repeat(np.arange(len(counts)), counts)
    index = np.arange(len(owners)) - offsets_of(counts)[owners]
    null_bytes = spans.data[spans.start[owners] + _COUNT_BYTES + index // 8]
    valid = (null_bytes >> (index % 8).astype(np.uint8) & 1) == 0
    return types.read_slots(element, spans.take(owners), strided(first, counts, width), valid), offsets_of(counts)


def write_arrays(element: LogicalType, elements: pa.Array, bounds: Offsets, types: LogicalTypes) -> Ragged:
    """Return one array per row. ``bounds``: the offsets at which each row's share of the elements begins."""
    offsets, counts = bounds - bounds[0], np.diff(bounds)
    without_nulls, valid = present(elements)
    slots, more = types.write_slots(element, without_nulls)
    more = spread(more, valid)
    width = types.of(element).slot_bytes(element)
    heads = _head_bytes(counts)
    sizes = (heads + counts * width + 7) // 8 * 8
    starts, owners = offsets_of(sizes), np.repeat(np.arange(len(counts)), counts)
    outside = more.offsets - more.offsets[0]
    ends = sizes[owners] + outside[:-1] - outside[offsets[owners]]
    table = np.zeros(int(starts[-1]), np.uint8)
    table[starts[:-1, None] + np.arange(_COUNT_BYTES)] = little_endian(counts.astype("<i4"))
    at = strided(starts[:-1] + heads, counts, width)
    table[at[valid, None] + np.arange(width)] = moved(slots, more.lengths[valid], ends[valid])[:, :width]
    index = np.flatnonzero(~valid) - offsets[owners[~valid]]
    bits = np.left_shift(1, index % 8).astype(np.uint8)
    np.bitwise_or.at(table, starts[owners[~valid]] + _COUNT_BYTES + index // 8, bits)
    return join([Ragged(table, starts), Ragged(more.data, more.offsets[offsets])])


def array_json(element: LogicalType, region: Region, types: LogicalTypes) -> list[Json]:
    """Return the typed JSON of the elements of one array. Raise CorruptStateError (``bad-binary-row``)."""
    count = region.number(0, _COUNT_BYTES)
    start = int(_head_bytes(count))
    nulls = region.number(_COUNT_BYTES, start - _COUNT_BYTES)
    support = types.of(element)
    width = support.slot_bytes(element)
    region.bytes_at(start, count * width)
    return [
        NULL if nulls >> i & 1 else support.slot_json(element, region, start + width * i, types) for i in range(count)
    ]


def _head_bytes(count: Offsets | int) -> Offsets:
    """Return the size of the count and the null bits, which fill words of four bytes."""
    return np.asarray(_COUNT_BYTES + (count + 31) // 32 * 4)


def _arrow_type(type_: LogicalType, types: LogicalTypes) -> pa.DataType:
    return pa.list_(types.arrow_of(type_.parts[0].type))


def _read(type_: LogicalType, spans: Spans, types: LogicalTypes) -> pa.Array:
    elements, offsets = read_arrays(type_.parts[0].type, spans, types)
    bounds = pa.array(small_offsets(offsets, Sql(type_)))
    return pa.ListArray.from_arrays(bounds, elements, type=types.arrow_of(type_))


def _write(type_: LogicalType, values: pa.Array, types: LogicalTypes) -> Ragged:
    values = nested_column(values, types.arrow_of(type_), Sql(type_))
    bounds = list_bounds(values)
    elements = values.values.slice(bounds[0], bounds[-1] - bounds[0])
    return write_arrays(type_.parts[0].type, elements, bounds, types)


def _json(type_: LogicalType, region: Region, types: LogicalTypes) -> Json:
    return {"type": "list", "v": array_json(type_.parts[0].type, region, types)}


def _codec(type_: Sql, types: LogicalTypes) -> Codec:
    return SizedCodec(type_, types, _read, _write)


ARRAY_TYPE = span_support("ARRAY", arrow_type=_arrow_type, read=_read, write=_write, span_json=_json, codec=_codec)
