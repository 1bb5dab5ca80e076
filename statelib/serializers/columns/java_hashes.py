"""The arithmetic of Java's hash codes on columns: modulo 2**32, as numpy's unsigned numbers wrap around.

Source: docs/spec/formats.md#hash-codes-of-keys; the Javadoc of each ``hashCode``.
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
    """Return ``Long.hashCode`` of 64-bit values: the exclusive or of the two halves."""
    words = values.view(np.uint64)
    return np.asarray((words ^ (words >> np.uint64(32))).astype(np.uint32))


def polynomial(values: Words, offsets: Offsets) -> Words:
    """Return one hash per row: h = 0, then h = 31 h + v for each value of the row. ``offsets`` start at 0.

    31 is odd, so it has an inverse modulo 2**32. If value i is scaled by 31**-i, one running sum serves all rows.
    """
    sums = np.zeros(len(values) + 1, np.uint32)
    np.cumsum(values * _powers(_INVERSE, len(values)), dtype=np.uint32, out=sums[1:])
    ends = offsets[1:]
    return np.asarray(
        (sums[ends] - sums[offsets[:-1]]) * _powers(_THIRTY_ONE, len(values) + 1)[np.maximum(ends - 1, 0)]
    )


def list_hash(hashes: Words, offsets: Offsets) -> Words:
    """Return ``List.hashCode`` of each row: like :func:`polynomial`, but h begins with 1."""
    lengths = np.diff(offsets)
    return polynomial(hashes, offsets) + _powers(_THIRTY_ONE, int(lengths.max(initial=0)) + 1)[lengths]


def row_sums(hashes: Words, offsets: Offsets) -> Words:
    """Return the sum of the values of each row."""
    total = np.zeros(len(hashes) + 1, np.uint32)
    np.cumsum(hashes, dtype=np.uint32, out=total[1:])
    return np.asarray(total[offsets[1:]] - total[offsets[:-1]])


def nulls_to_zero(hash_of: Callable[[pa.Array], Hashes], values: pa.Array) -> Words:
    """Return ``hash_of`` the values, and 0 for nulls."""
    if not values.null_count:
        return hash_of(values).view(np.uint32)
    result = np.zeros(len(values), np.uint32)
    without_nulls, valid = present(values)
    result[valid] = hash_of(without_nulls).view(np.uint32)
    return result


def field_hash(values: pa.Array, hashes: Hashes) -> Hashes:
    """Return the number that each value adds to the hash of a Row: 31 more than its own hash, or 0 if it is null."""
    if not values.null_count:
        return hashes + np.int32(31)
    return np.where(valid_rows(values), hashes + np.int32(31), np.int32(0))


def signed(words: Words) -> Hashes:
    """Return the words as Java's signed ints."""
    return np.ascontiguousarray(words).view(np.int32)


def no_key_hash(what: object) -> UnsupportedError:
    """Return the error for a type that cannot be a key."""
    return UnsupportedError(
        f"type {what} as a key: Flink refuses it, because its hash is not that of its content",
        kind="no-key-hash",
        hint="key by a scalar, a tuple or a row",
    )


def _powers(base: np.uint32, count: int) -> Words:
    """Return ``base`` to the powers 0 to ``count - 1``."""
    table = np.full(count, base, np.uint32)
    table[:1] = 1
    return np.cumprod(table, dtype=np.uint32)
