"""Flink's TimeWindow: a half-open span of event time, the namespace of windowed state.

Source: flink-formats.md sections 2.1 and 6.2 (TimeWindow.Serializer): two longs, milliseconds.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelib.model.types import TIME_WINDOW, Scalar
from statelib.serializers.columns.arrow import nested_column, number_array, numbers, scalar_column
from statelib.serializers.columns.codec import Cursor, Hashes
from statelib.serializers.columns.cursors import big_endian, read_unsigned, require
from statelib.serializers.columns.java_hashes import no_key_hash
from statelib.wire.ragged import Bytes, Ragged, from_fixed

MOMENT = pa.timestamp("ms", "UTC")
"""How a bound of a window, or the moment of a timer, stands in a column."""
_WINDOW = pa.struct([("start", MOMENT), ("end", MOMENT)])


@dataclass(frozen=True)
class TimeWindowCodec:
    """A struct ``start, end`` (exclusive) of UTC timestamps in milliseconds; any 64-bit number is one."""

    type: Scalar = TIME_WINDOW
    arrow_type: pa.DataType = _WINDOW
    width: int = 16
    reported_length: int = 16

    def encode(self, values: pa.Array) -> Ragged:
        column = nested_column(values, self.arrow_type, self.type)
        bounds = [numbers(scalar_column(bound, MOMENT, self.type), "i8") for bound in column.flatten()]
        return from_fixed(np.hstack([big_endian(bound) for bound in bounds]))

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        bounds = [number_array(read_unsigned(data, at, 8), MOMENT) for at in (cursor, cursor + 8)]
        return pa.StructArray.from_arrays(bounds, fields=list(_WINDOW)), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:  # noqa: ARG002
        require(cursor, self.width, limit, self.type)
        return cursor + self.width

    def java_hash(self, values: pa.Array) -> Hashes:  # noqa: ARG002
        raise no_key_hash(self.type)

    def deep_hash(self, values: pa.Array) -> Hashes:  # noqa: ARG002
        raise no_key_hash(self.type)
