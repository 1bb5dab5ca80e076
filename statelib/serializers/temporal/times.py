"""LocalTime: hour, minute, second and nanosecond. Columns hold nanoseconds of the day.

Source: docs/spec/formats.md#scalars, #hash-codes-of-keys.
"""

import numpy as np
import pyarrow as pa

from statelib.model.types import TIME
from statelib.serializers.aspects.json_values import NULL, Json
from statelib.serializers.aspects.plain_hashing import folded, plain_scalar
from statelib.serializers.aspects.snapshot_payloads import plain_class, plain_snapshot
from statelib.serializers.aspects.type_support import scalar_support
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import big_endian, read_unsigned, refuse
from statelib.serializers.columns.java_hashes import fold_long
from statelib.serializers.temporal.codec import SECOND_NS, Longs, Parsed, TemporalCodec
from statelib.wire.ragged import Bytes
from statelib.wire.reader import Reader

TIME_BYTES = 7
_NULL_HOUR = -128


def time_bytes(nanos: Longs) -> Bytes:
    """Return the bytes of times, a matrix (rows, 7)."""
    seconds = nanos // SECOND_NS
    clock = [big_endian(part.astype("i1")) for part in (seconds // 3600, seconds // 60 % 60, seconds % 60)]
    return np.hstack([*clock, big_endian((nanos % SECOND_NS).astype("i4"))])


def parse_time(data: Bytes, cursor: Cursor) -> Parsed:
    """Read a time at each cursor. Raise CorruptStateError (``bad-time``)."""
    parts = ((0, 1, 24), (1, 1, 60), (2, 1, 60), (3, 4, SECOND_NS))
    read = [read_unsigned(data, cursor + at, width, f"i{width}").astype(np.int64) for at, width, _ in parts]
    null = read[0] == _NULL_HOUR
    for values, (_, _, end) in zip(read, parts, strict=True):
        refuse(~null & ((values < 0) | (values >= end)), values, TIME, f"a part of 0 to {end - 1}", "bad-time")
    hour, minute, second, nano = read
    return np.where(null, 0, ((hour * 60 + minute) * 60 + second) * SECOND_NS + nano), null


def read_nano_of_day(reader: Reader) -> int | None:
    """Read a time and return its nanoseconds of the day, or None for Flink's null."""
    hour, minute, second, nano = reader.i8(), reader.i8(), reader.i8(), reader.i32()
    return None if hour == _NULL_HOUR else ((hour * 60 + minute) * 60 + second) * 10**9 + nano


def _read_json(reader: Reader) -> Json:
    nanos = read_nano_of_day(reader)
    return NULL if nanos is None else {"type": "localtime", "nanoOfDay": nanos}


TIMES = scalar_support(
    TemporalCodec(TIME, pa.time64("ns"), TIME_BYTES, time_bytes, parse_time, fold_long),
    _read_json,
    plain_snapshot(TIME, plain_class("LocalTimeSerializer")),
    plain_scalar(lambda value: folded(value.value)),
)
