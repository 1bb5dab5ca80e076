"""RAW: bytes that only a user's serializer can read.

Source: docs/spec/formats.md#binary-rows.
"""

import pyarrow as pa

from statelib.model.sql import LogicalType
from statelib.model.types import Sql
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.columns.arrow import byte_array, byte_rows, scalar_column
from statelib.serializers.sql.values.json_slots import Region
from statelib.serializers.sql.values.logical_support import LogicalTypes, no_columns, span_support
from statelib.serializers.sql.values.slots import Spans
from statelib.wire.ragged import Ragged, gather

_BINARY = pa.binary()


def _read(_type: LogicalType, spans: Spans, _types: LogicalTypes) -> pa.Array:
    return byte_array(gather(spans.data, spans.start, spans.end - spans.start), _BINARY)


def _write(type_: LogicalType, values: pa.Array, _types: LogicalTypes) -> Ragged:
    return byte_rows(scalar_column(values, _BINARY, Sql(type_)))


def _json(type_: LogicalType, region: Region, _types: LogicalTypes) -> Json:
    return {"type": "raw", "class": type_.variant, "hex": bytes(region.data).hex()}


RAW_TYPE = span_support(
    "RAW", arrow_type=lambda _type, _types: _BINARY, read=_read, write=_write, span_json=_json, codec=no_columns
)
