"""Exact sums of decimals: per group of a batch, and of two columns row by row.

Sums have 38 digits and the scale of their values, as in Spark and in Flink. They are computed with whole 64-bit numbers
by numpy, and never with an object per value.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.model.sql import MAX_DIGITS
from statelib.serializers.columns.decimal_words import Words, decimal_array, decimal_words

_HALF_BITS, _HALF = 32, 0xFFFFFFFF
_LONG_LIMIT = 2**63
Codes = npt.NDArray[np.int64]


def sum_decimals(values: pa.Array, codes: Codes, size: int) -> pa.Array:
    """Return the sum of the values per group, null for a group without values. ``values`` has no nulls.

    Raise pyarrow.ArrowInvalid if a sum has more than 38 digits."""
    words, counts = decimal_words(values), np.bincount(codes, minlength=size)
    sums = _long_sums(words, codes, counts) if _fit_longs(words, counts) else _wide_sums(words, codes, size)
    return _decimals(sums, values.type.scale, counts == 0)


def add_decimals(before: pa.Array, more: pa.Array) -> pa.Array:
    """Return the sums row by row. Null counts as zero, but the sum of two nulls is null.

    Raise pyarrow.ArrowInvalid if a sum has more than 38 digits."""
    null = pc.and_(before.is_null(), more.is_null()).to_numpy(zero_copy_only=False)
    zero = pa.scalar(0, before.type)
    left, right = (decimal_words(part.fill_null(zero)) for part in (before, more))
    low = left[:, 0].view(np.uint64) + right[:, 0].view(np.uint64)
    carry = (low < left[:, 0].view(np.uint64)).astype(np.int64)
    high = left[:, 1] + right[:, 1] + carry
    _check_signs(((left[:, 1] ^ high) & (right[:, 1] ^ high)) < 0)
    return _decimals(np.stack([low.view(np.int64), high], axis=1), before.type.scale, null)


def _fit_longs(words: Words, counts: npt.NDArray[np.int64]) -> bool:
    """Return whether no sum can exceed a long, by the largest value and the largest number of values."""
    low, high = words[:, 0], words[:, 1]
    if not len(words):
        return True
    if (high != low >> 63).any():
        return False
    return max(int(low.max()), -int(low.min())) * int(counts.max()) < _LONG_LIMIT


def _long_sums(words: Words, codes: Codes, counts: npt.NDArray[np.int64]) -> Words:
    sums = np.zeros((len(counts), 2), np.int64)
    np.add.at(sums[:, 0], codes, words[:, 0])
    sums[:, 1] = sums[:, 0] >> 63
    return sums


def _wide_sums(words: Words, codes: Codes, size: int) -> Words:
    """Add the four halves of the words separately. Each sum of halves fits a long, for up to 2**31 values."""
    halves = (words[:, 0] & _HALF, (words[:, 0] >> _HALF_BITS) & _HALF, words[:, 1] & _HALF, words[:, 1] >> _HALF_BITS)
    sums, carry = [], np.zeros(size, np.int64)
    for half in halves:
        total = carry
        np.add.at(total, codes, half)
        sums.append(total)
        carry = total >> _HALF_BITS
    _check_signs(sums[3] >> _HALF_BITS - 1 != sums[3] >> 63)
    low, high = (sums[i] & _HALF | sums[i + 1] << _HALF_BITS for i in (0, 2))
    return np.stack([low, high], axis=1)


def _check_signs(overflow: npt.NDArray[np.bool_]) -> None:
    """Raise pyarrow.ArrowInvalid if a sum needs more than 128 bits."""
    if overflow.any():
        raise pa.ArrowInvalid("a sum of decimals needs more than 128 bits")


def _decimals(words: Words, scale: int, null: npt.NDArray[np.bool_]) -> pa.Array:
    sums = decimal_array(words, pa.decimal128(MAX_DIGITS, scale))
    if not null.any():
        return sums
    validity = pa.array(~null).buffers()[1]
    return pa.Array.from_buffers(sums.type, len(sums), [validity, sums.buffers()[1]])
