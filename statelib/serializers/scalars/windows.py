"""Windows of event time, which are namespaces of state: the time window, and the global window without bounds.

Source: docs/spec/formats.md#composite-keys, #scalars (TimeWindow.Serializer): two longs, milliseconds.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelib.model.types import GLOBAL_WINDOW, TIME_WINDOW, Scalar
from statelib.serializers.aspects.json_values import Json
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import plain_snapshot
from statelib.serializers.aspects.type_support import scalar_support
from statelib.serializers.columns.arrow import nested_column, number_array, numbers, scalar_column
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import big_endian, read_unsigned, require
from statelib.serializers.columns.unkeyed import Unkeyed
from statelib.serializers.scalars.void import VoidCodec, read_void
from statelib.wire.ragged import Bytes, Ragged, from_fixed
from statelib.wire.reader import Reader

MOMENT = pa.timestamp("ms", "UTC")
"""The Arrow type of a bound of a window, and of the moment of a timer."""
_WINDOW = pa.struct([("start", MOMENT), ("end", MOMENT)])
_PACKAGE = "org.apache.flink.streaming.api.windowing.windows."


@dataclass(frozen=True)
class TimeWindowCodec(Unkeyed):
    """The codec of time windows: a struct ``start, end`` (exclusive) of UTC timestamps in milliseconds. Every 64-bit
    number is a valid bound."""

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


def _read_time_window(reader: Reader) -> Json:
    return {"type": "timewindow", "start": reader.i64(), "end": reader.i64()}


def _read_global_window(reader: Reader) -> Json:
    read_void(reader)
    return {"type": "globalwindow"}


WINDOWS = (
    scalar_support(
        TimeWindowCodec(),
        _read_time_window,
        plain_snapshot(TIME_WINDOW, f"{_PACKAGE}TimeWindow$Serializer$TimeWindowSerializerSnapshot"),
        NO_PLAIN_HASH,
    ),
    scalar_support(
        VoidCodec(GLOBAL_WINDOW, reported_length=1),
        _read_global_window,
        plain_snapshot(GLOBAL_WINDOW, f"{_PACKAGE}GlobalWindow$Serializer$GlobalWindowSerializerSnapshot"),
        NO_PLAIN_HASH,
    ),
)
