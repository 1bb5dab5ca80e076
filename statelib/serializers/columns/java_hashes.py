"""Java's hash codes, modulo 2**32 in numpy's wrap-around arithmetic.

Source: flink-formats.md section 1.2; the Javadoc of each ``hashCode``.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import UnsupportedError
from statelib.serializers.columns.arrow import present, valid_rows
from statelib.serializers.columns.codec import Hashes
from statelib.wire.ragged import Offsets

Words = npt.NDArray[np.uint32]

_THIRTY_ONE = np.uint32(31)
_INVERSE = np.uint32(pow(31, -1, 2**32))


def fold_long(values: npt.NDArray[np.generic]) -> Words:
    """``Long.hashCode`` of 64-bit values: the two halves xored."""
    words = values.view(np.uint64)
    return np.asarray((words ^ (words >> np.uint64(32))).astype(np.uint32))


def polynomial(values: Words, offsets: Offsets) -> Words:
    """Per row of ``offsets`` (which start at 0): h = 0, then h = 31 h + v for each value.

    31 is odd, so it has an inverse: scaling every value by 31**-i makes one running sum serve all rows.
    """
    sums = np.zeros(len(values) + 1, np.uint32)
    np.cumsum(values * _powers(_INVERSE, len(values)), dtype=np.uint32, out=sums[1:])
    ends = offsets[1:]
    return np.asarray(
        (sums[ends] - sums[offsets[:-1]]) * _powers(_THIRTY_ONE, len(values) + 1)[np.maximum(ends - 1, 0)]
    )


def list_hash(hashes: Words, offsets: Offsets) -> Words:
    """``List.hashCode`` per row: as :func:`polynomial`, but starting with h = 1."""
    lengths = np.diff(offsets)
    return polynomial(hashes, offsets) + _powers(_THIRTY_ONE, int(lengths.max(initial=0)) + 1)[lengths]


def row_sums(hashes: Words, offsets: Offsets) -> Words:
    """The sum of each row's values."""
    total = np.zeros(len(hashes) + 1, np.uint32)
    np.cumsum(hashes, dtype=np.uint32, out=total[1:])
    return np.asarray(total[offsets[1:]] - total[offsets[:-1]])


def nulls_to_zero(hash_of: Callable[[pa.Array], Hashes], values: pa.Array) -> Words:
    """``hash_of`` the values, 0 for nulls."""
    if not values.null_count:
        return hash_of(values).view(np.uint32)
    result = np.zeros(len(values), np.uint32)
    kept, valid = present(values)
    result[valid] = hash_of(kept).view(np.uint32)
    return result


def field_hash(values: pa.Array, hashes: Hashes) -> Hashes:
    """The part of a plain value in the hash of a Row: 31 more than its own hash, 0 for null."""
    if not values.null_count:
        return hashes + np.int32(31)
    return np.where(valid_rows(values), hashes + np.int32(31), np.int32(0))


def signed(words: Words) -> Hashes:
    return np.ascontiguousarray(words).view(np.int32)


def no_key_hash(what: object) -> UnsupportedError:
    return UnsupportedError(
        f"type {what} as a key: Flink refuses it, because its hash is not that of its content",
        kind="no-key-hash",
        hint="key by a scalar, a tuple or a row",
    )


def _powers(base: np.uint32, count: int) -> Words:
    """base**0 to base**(count - 1)."""
    table = np.full(count, base, np.uint32)
    table[:1] = 1
    return np.cumprod(table, dtype=np.uint32)
