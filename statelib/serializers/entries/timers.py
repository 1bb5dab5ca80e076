"""Timers as entries: a moment, a key, a namespace, all of it in the key; there is no value.

Source: docs/spec/formats.md#timers (TimerSerializer). The sign of the moment is flipped, so that the
timers of a key group are in the order of time when they are in the order of their bytes.
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
    """Timestamps without nulls, of :data:`MOMENT`, as a timer begins with them."""
    slots = numbers(scalar_column(timestamps, MOMENT, LONG), "u8")
    return fixed(np.asarray(slots, np.uint64) ^ _SIGN)


def decode_moments(data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
    """The inverse of :func:`encode_moments`, and the cursors behind the moments."""
    require(cursor, MOMENT_BYTES, limit, "timer")
    slots = np.asarray(read_unsigned(data, cursor, MOMENT_BYTES), np.uint64) ^ _SIGN
    return number_array(slots, MOMENT), cursor + MOMENT_BYTES


def no_values(name: str, values: Ragged) -> pa.Array:
    """The value column of timers, once it is sure that they have none: CorruptStateError (``trailing-bytes``)."""
    filled = np.flatnonzero(values.lengths)
    if len(filled):
        raise CorruptStateError(
            f"timers {name!r} in row {filled[0]}: expected no value, found {values.lengths[filled[0]]} bytes",
            kind="trailing-bytes",
        )
    return pa.nulls(len(values))
