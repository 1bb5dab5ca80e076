"""The codec that all dates and times share.

Arrow holds times of day and points in time as nanoseconds in 64 bits (the years 1677 to 2262). Flink's null is a date
or time that cannot exist; it becomes an Arrow null.

Source: docs/spec/formats.md#scalars, #hash-codes-of-keys.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import UnsupportedError
from statelib.model.types import Scalar
from statelib.serializers.columns.arrow import number_array, numbers, scalar_column, with_nulls
from statelib.serializers.columns.codec import Cursor, Hashes
from statelib.serializers.columns.cursors import require
from statelib.serializers.columns.java_hashes import Words, field_hash, nulls_to_zero, signed
from statelib.wire.ragged import Bytes, Ragged, from_fixed

Longs = npt.NDArray[np.int64]
Parsed = tuple[Longs, npt.NDArray[np.bool_]]
"""Ticks, and one boolean per row: true for Flink's null."""

SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS


@dataclass(frozen=True)
class TemporalCodec:
    """The codec of a type of fixed width whose column holds ticks: days, milliseconds or nanoseconds.

    ``to_bytes`` returns a matrix (rows, width) of bytes. ``parse`` reads at cursors that are within bounds."""

    type: Scalar
    arrow_type: pa.DataType
    width: int
    to_bytes: Callable[[Longs], Bytes]
    parse: Callable[[Bytes, Cursor], Parsed]
    hash_of: Callable[[Longs], Words]

    @property
    def reported_length(self) -> int:
        return self.width

    def encode(self, values: pa.Array) -> Ragged:
        return from_fixed(self.to_bytes(self._ticks(values)))

    def decode(self, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[pa.Array, Cursor]:
        end = self.skip(data, cursor, limit)
        ticks, null = self.parse(data, cursor)
        values = number_array(ticks[~null].astype(self._slot), self.arrow_type)
        return with_nulls(values, ~null), end

    def skip(self, data: Bytes, cursor: Cursor, limit: Cursor) -> Cursor:  # noqa: ARG002
        require(cursor, self.width, limit, self.type)
        return cursor + self.width

    def java_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(lambda present: signed(self.hash_of(self._ticks(present))), values))

    def deep_hash(self, values: pa.Array) -> Hashes:
        return field_hash(values, self.java_hash(values))

    @property
    def _slot(self) -> str:
        return f"i{self.arrow_type.bit_width // 8}"

    def _ticks(self, values: pa.Array) -> Longs:
        return numbers(scalar_column(values, self.arrow_type, self.type), self._slot).astype(np.int64)


def nanoseconds(units: Longs, nanos: Longs, unit_s: int, what: Scalar) -> Longs:
    """Return ``units`` of ``unit_s`` seconds plus nanoseconds.

    Raise UnsupportedError (``time-out-of-range``) if 64 bits do not hold a sum."""
    size = unit_s * SECOND_NS
    ticks = units * size + nanos
    check_range((ticks // size != units) | (ticks % size != nanos), what)
    return ticks


def check_range(outside: npt.NDArray[np.bool_], what: Scalar) -> None:
    """Raise UnsupportedError (``time-out-of-range``) for the first row that is ``outside``."""
    if outside.any():
        raise UnsupportedError(
            f"{what} in row {int(np.argmax(outside))}: outside the years that Arrow's columns can hold",
            kind="time-out-of-range",
        )
