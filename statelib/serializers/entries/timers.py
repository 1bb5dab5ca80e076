"""Timers as entries. The key holds the moment, the key and the namespace; the value is empty.

The sign of the moment is flipped, so that timers in the order of their bytes are also in the order of time.

Source: docs/spec/formats.md#timers (TimerSerializer).
"""

import numpy as np
import pyarrow as pa

from statelib.errors import CorruptStateError
from statelib.model.types import LONG
from statelib.serializers.columns.arrow import number_array, numbers, scalar_column
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import fixed, read_unsigned, require
from statelib.serializers.scalars.windows import MOMENT
from statelib.wire.ragged import Bytes, Ragged

_SIGN = np.uint64(1 << 63)
MOMENT_BYTES = 8


def encode_moments(timestamps: pa.Array) -> Ragged:
    """Return the bytes with which timers begin. ``timestamps`` has the type :data:`MOMENT` and no nulls."""
    slots = numbers(scalar_column(timestamps, MOMENT, LONG), "u8")
    return fixed(np.asarray(slots, np.uint64) ^ _SIGN)


def decode_moments(data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
    """Read a moment at each cursor. Return the timestamps and the cursors after them. This is the inverse of
    :func:`encode_moments`."""
    require(cursor, MOMENT_BYTES, limit, "timer")
    slots = np.asarray(read_unsigned(data, cursor, MOMENT_BYTES), np.uint64) ^ _SIGN
    return number_array(slots, MOMENT), cursor + MOMENT_BYTES


def due_timers(keys: Ragged, prefix_width: int, until_ms: int) -> Ragged:
    """Return the serialized timers up to and including ``until_ms`` (epoch milliseconds), in the given order.
    ``prefix_width``: the size in bytes of a key group."""
    timestamps, _ = decode_moments(keys.data, keys.starts + prefix_width, keys.offsets[1:])
    return keys.take(np.flatnonzero(np.asarray(numbers(timestamps, "i8"), np.int64) <= until_ms))


def moment_bytes(moment_ms: int) -> bytes:
    """Return the bytes of one moment, as :func:`encode_moments` does."""
    return (moment_ms + (1 << 63)).to_bytes(MOMENT_BYTES, "big")


def no_values(name: str, values: Ragged) -> pa.Array:
    """Return a column of nulls for the values of timers.

    Raise CorruptStateError (``trailing-bytes``) if a value has any bytes."""
    filled = np.flatnonzero(values.lengths)
    if len(filled):
        raise CorruptStateError(
            f"timers {name!r} in row {filled[0]}: expected no value, found {values.lengths[filled[0]]} bytes",
            kind="trailing-bytes",
        )
    return pa.nulls(len(values))
