"""MAP and MULTISET: the size of the array of keys, that array, and the array of values.

The value of each element of a MULTISET is the number of times that it occurs.

Source: docs/spec/formats.md#binary-rows.
"""

import numpy as np
import pyarrow as pa

from statelib.errors import CorruptStateError
from statelib.model.sql import LogicalType
from statelib.model.types import Sql
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.columns.arrow import list_bounds, map_column, nested_column
from statelib.serializers.columns.codec import Codec
from statelib.serializers.columns.cursors import refuse
from statelib.serializers.sql.snapshots import MULTIPLICITY
from statelib.serializers.sql.values.arrays import array_json, read_arrays, write_arrays
from statelib.serializers.sql.values.json_slots import Region
from statelib.serializers.sql.values.logical_support import LogicalTypes, span_support
from statelib.serializers.sql.values.sized_codec import SizedCodec
from statelib.serializers.sql.values.slots import Spans, little_endian
from statelib.wire.ragged import Ragged, from_fixed, join

_SIZE_BYTES = 4


def _key_and_value(type_: LogicalType) -> tuple[LogicalType, LogicalType]:
    return type_.parts[0].type, type_.parts[1].type if type_.root == "MAP" else MULTIPLICITY


def _arrow_type(type_: LogicalType, types: LogicalTypes) -> pa.DataType:
    return pa.map_(*map(types.arrow_of, _key_and_value(type_)))


def _read(type_: LogicalType, spans: Spans, types: LogicalTypes) -> pa.Array:
    key, value = _key_and_value(type_)
    size = spans.numbers(spans.start, "<i4", type_).astype(np.int64)
    start = spans.start + _SIZE_BYTES
    middle = start + size
    spans.check(start, size, type_)
    keys, offsets = read_arrays(key, Spans(spans.data, start, middle), types)
    items, others = read_arrays(value, Spans(spans.data, middle, spans.end), types)
    refuse(np.diff(offsets) != np.diff(others), np.diff(others), Sql(type_), "one value per key", "bad-binary-row")
    return map_column(offsets, keys, items, types.arrow_of(type_), Sql(type_))


def _write(type_: LogicalType, values: pa.Array, types: LogicalTypes) -> Ragged:
    key, value = _key_and_value(type_)
    values = nested_column(values, types.arrow_of(type_), Sql(type_))
    bounds = list_bounds(values)
    first, size = bounds[0], bounds[-1] - bounds[0]
    keys = write_arrays(key, values.keys.slice(first, size), bounds, types)
    items = write_arrays(value, values.items.slice(first, size), bounds, types)
    return join([from_fixed(little_endian(keys.lengths.astype("<i4"))), keys, items])


def _json(type_: LogicalType, region: Region, types: LogicalTypes) -> Json:
    key, value = _key_and_value(type_)
    what = region.what
    size = region.number(0, _SIZE_BYTES)
    middle = _SIZE_BYTES + size
    keys = array_json(key, Region(region.bytes_at(_SIZE_BYTES, size), what), types)
    values = array_json(value, Region(region.bytes_at(middle, len(region.data) - middle), what), types)
    if len(keys) != len(values):
        raise CorruptStateError(f"{what}: {len(keys)} keys of a map with {len(values)} values", kind="bad-binary-row")
    return {"type": "map", "v": [list(pair) for pair in zip(keys, values, strict=True)]}


def _codec(type_: Sql, types: LogicalTypes) -> Codec:
    return SizedCodec(type_, types, _read, _write)


MAP_TYPES = span_support(
    "MAP", "MULTISET", arrow_type=_arrow_type, read=_read, write=_write, span_json=_json, codec=_codec
)
