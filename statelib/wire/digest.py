"""Content hashes of rows of bytes, whose sum describes a set of entries.

The digest of a key group is the sum modulo 2**64 of :func:`row_hashes` of its entries: it does not depend on order,
format or backend, and replacing an entry takes one subtraction and one addition. It detects damage and mix-ups; it does
not protect against an attacker.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from statelib.wire.ragged import Bytes, Ragged, blocks

Numbers = npt.NDArray[np.uint64]

_BASE = np.uint64(0x9E3779B97F4A7C15)
_BLOCK = 64 * 1024
"""The size in bytes of the rows of different lengths that are converted together. As 64-bit numbers they are eight
times as large, and still fit into the processor's cache."""

_CACHED_BYTES = 128 * 1024
"""The same for rows of equal length, whose sums need no further numbers."""


def row_hashes(keys: Ragged, values: Ragged) -> Numbers:
    """Return the uint64 hash of each entry: row ``i`` of ``keys`` with row ``i`` of ``values``. Shape: (rows,)."""
    return np.asarray(_mix(_mix(byte_hashes(keys)) * np.uint64(3) + _mix(byte_hashes(values) ^ _BASE)), np.uint64)


def byte_hashes(rows: Ragged) -> Numbers:
    """Return the uint64 hash of the bytes of each row. It is the row as a number in base _BASE modulo 2**64: its digits
    are the byte values plus one, and its length is added.

    Each byte becomes a 64-bit number on the way, so only a block of bytes is converted at a time. All bytes of a block
    are multiplied by ascending powers of the base. The sum of a row is then divided by the power at its begin, because
    odd numbers have an inverse modulo 2**64.
    """
    powers, inverses, sums = _powers()
    width = rows.width
    if width is not None and width <= _BLOCK:
        return _equal_length_polynomials(rows.matrix, powers) + np.uint64(width)
    lengths = rows.lengths
    result = lengths.astype(np.uint64)
    filled = np.flatnonzero(lengths)
    bounds = np.append(rows.starts[filled], rows.offsets[-1])
    for a, b in blocks(bounds, _BLOCK):
        data, starts, part = rows.data[bounds[a] : bounds[b]], bounds[a:b] - bounds[a], filled[a:b]
        if len(data) > _BLOCK:
            result[part] += _long_row_polynomial(data, powers)
            continue
        numbers = data.astype(np.uint64)
        numbers *= powers[: len(data)]
        result[part] += np.add.reduceat(numbers, starts) * inverses[starts] + sums[lengths[part]]
    return result


@cache
def _powers() -> tuple[Numbers, Numbers, Numbers]:
    """Return the powers of the base from 1 on, those of its inverse from 0 on, and the sums of the first powers of the
    base, from that of none on."""
    powers, inverses = (
        np.cumprod(np.full(_BLOCK, base, np.uint64), dtype=np.uint64) for base in (_BASE, pow(int(_BASE), -1, 2**64))
    )
    return powers, np.append(np.uint64(1), inverses), np.append(np.uint64(0), np.cumsum(powers, dtype=np.uint64))


def _equal_length_polynomials(matrix: Bytes, powers: Numbers) -> Numbers:
    """Return the polynomial of each row of a matrix."""
    factors = powers[: matrix.shape[1]]
    result = np.empty(len(matrix), np.uint64)
    step = _CACHED_BYTES // max(1, matrix.shape[1]) + 1
    for at in range(0, len(matrix), step):
        np.matmul(matrix[at : at + step].astype(np.uint64), factors, out=result[at : at + step])
    return np.asarray(result + factors.sum(), np.uint64)


def _long_row_polynomial(data: Bytes, powers: Numbers) -> np.uint64:
    """Return the polynomial of one row of any length."""
    total, factor = np.uint64(0), np.uint64(1)
    with np.errstate(over="ignore"):
        for at in range(0, len(data), _BLOCK):
            piece = data[at : at + _BLOCK].astype(np.uint64) + np.uint64(1)
            total = np.uint64(total + factor * np.uint64(piece @ powers[: len(piece)]))
            factor = np.uint64(factor * powers[len(piece) - 1])
    return total


def _mix(x: Numbers) -> Numbers:
    """Return ``x`` after the finaliser of SplitMix64, in which every input bit affects every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)
