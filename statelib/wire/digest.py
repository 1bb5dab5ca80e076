"""A content hash a row of bytes, made so that sums of it describe a set of entries.

The digest of a key group is the sum modulo 2**64 of :func:`row_hashes` of its entries: it does
not depend on order, format or backend, and replacing an entry is one subtraction and one
addition. It finds damage and mix-ups; it is no defence against an attacker.
"""

import numpy as np
import numpy.typing as npt

from statelib.wire.ragged import Ragged, positions

_BASE = np.uint64(0x9E3779B97F4A7C15)
_ROWS = 16384
"""Rows hashed at a time: their bytes as 64-bit numbers should stay in the processor's cache."""


def row_hashes(keys: Ragged, values: Ragged) -> npt.NDArray[np.uint64]:
    """uint64 hash of each (key, value) entry; the rows of both belong together."""
    starts = range(0, len(keys), _ROWS)
    hashes = [_row_hashes(keys.slice(at, at + _ROWS), values.slice(at, at + _ROWS)) for at in starts]
    return np.concatenate([np.empty(0, np.uint64), *hashes])


def _row_hashes(keys: Ragged, values: Ragged) -> npt.NDArray[np.uint64]:
    mixed = _mix(_polynomial(keys)) * np.uint64(3) + _mix(_polynomial(values) ^ _BASE)
    return np.asarray(_mix(mixed), np.uint64)


def _polynomial(rows: Ragged) -> npt.NDArray[np.uint64]:
    """Each row as a number in base _BASE modulo 2**64, byte values plus one, the length mixed in."""
    lengths = rows.lengths
    if not len(lengths):
        return np.zeros(0, np.uint64)
    longest = int(lengths.max())
    powers = np.cumprod(np.full(longest + 1, _BASE, np.uint64))
    total = rows.data[rows.offsets[0] : rows.offsets[-1]].astype(np.uint64) + np.uint64(1)
    total *= powers[positions(np.zeros(len(lengths), np.int64), lengths)]
    sums = np.zeros(len(total) + 1, np.uint64)
    np.cumsum(total, out=sums[1:])
    bounds = rows.offsets - rows.offsets[0]
    return np.asarray(sums[bounds[1:]] - sums[bounds[:-1]] + lengths.astype(np.uint64), np.uint64)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64: every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)
