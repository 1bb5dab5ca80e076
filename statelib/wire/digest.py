"""Content hashes of rows of bytes, whose sum describes a set of entries.

The digest of a key group is the sum modulo 2**64 of :func:`row_hashes` of its entries: it does not depend on order,
format or backend, and replacing an entry takes one subtraction and one addition. It detects damage and mix-ups; it does
not protect against an attacker.
"""

import numpy as np
import numpy.typing as npt

from statelib.wire.ragged import BLOCK_BYTES, Bytes, Ragged, blocks, offsets_of, positions, rows_by_length, spans

_BASE = np.uint64(0x9E3779B97F4A7C15)
_CONVERTED_BYTES = 4 * BLOCK_BYTES
"""The size in bytes of the rows that are converted together. Rows of different lengths are converted length by length,
so that smaller blocks would have few rows of each length."""

_CACHED_BYTES = 128 * 1024
"""The size in bytes of the rows of equal length that are converted together. As 64-bit numbers they are eight times as
large, and still fit into the processor's cache."""


def row_hashes(keys: Ragged, values: Ragged) -> npt.NDArray[np.uint64]:
    """Return the uint64 hash of each entry: row ``i`` of ``keys`` with row ``i`` of ``values``. Shape: (rows,)."""
    return np.asarray(_mix(_mix(byte_hashes(keys)) * np.uint64(3) + _mix(byte_hashes(values) ^ _BASE)), np.uint64)


def byte_hashes(rows: Ragged) -> npt.NDArray[np.uint64]:
    """Return the uint64 hash of the bytes of each row. It is the row as a number in base _BASE modulo 2**64: its digits
    are the byte values plus one, and its length is added.

    Each byte becomes a 64-bit number on the way, so only a block of bytes is converted at a time.
    """
    width = rows.width
    if width is not None and width < _CACHED_BYTES:
        powers = np.cumprod(np.full(width, _BASE, np.uint64), dtype=np.uint64)
        return _equal_length_polynomials(rows.matrix, powers) + np.uint64(width)
    result = np.empty(len(rows), np.uint64)
    longest = int(rows.lengths.max()) if len(rows) else 0
    powers = np.cumprod(np.full(min(longest, _CONVERTED_BYTES) + 1, _BASE, np.uint64), dtype=np.uint64)
    for a, b in blocks(rows.offsets, _CONVERTED_BYTES):
        data = rows.data[rows.offsets[a] : rows.offsets[b]]
        result[a:b] = _block_polynomials(data, np.diff(rows.offsets[a : b + 1]), powers)
    return result + rows.lengths.astype(np.uint64)


def _block_polynomials(
    data: Bytes, lengths: npt.NDArray[np.int64], powers: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """Return the polynomial of each row in a block; ``lengths`` are the lengths of the rows."""
    if len(lengths) == 1:
        return np.array([_long_row_polynomial(data, powers)], np.uint64)
    if (lengths == lengths[0]).all():
        return _equal_length_polynomials(data.reshape(len(lengths), -1), powers)
    groups = rows_by_length(lengths)
    if groups is not None:
        result, starts = np.empty(len(lengths), np.uint64), offsets_of(lengths)
        for rows in groups:
            result[rows] = _equal_length_polynomials(spans(data, starts[rows], int(lengths[rows[0]])), powers)
        return result
    total = data.astype(np.uint64) + np.uint64(1)
    total *= powers[positions(np.zeros(len(lengths), np.int64), lengths)]
    sums = np.zeros(len(total) + 1, np.uint64)
    np.cumsum(total, out=sums[1:])
    bounds = np.append(0, np.cumsum(lengths))
    return np.asarray(sums[bounds[1:]] - sums[bounds[:-1]], np.uint64)


def _equal_length_polynomials(matrix: Bytes, powers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the polynomial of each row of a matrix."""
    factors = powers[: matrix.shape[1]]
    result = np.empty(len(matrix), np.uint64)
    step = _CACHED_BYTES // max(1, matrix.shape[1]) + 1
    for at in range(0, len(matrix), step):
        np.matmul(matrix[at : at + step].astype(np.uint64), factors, out=result[at : at + step])
    return np.asarray(result + factors.sum(), np.uint64)


def _long_row_polynomial(data: Bytes, powers: npt.NDArray[np.uint64]) -> np.uint64:
    """Return the polynomial of one row of any length."""
    total, factor = np.uint64(0), np.uint64(1)
    with np.errstate(over="ignore"):
        for at in range(0, len(data), BLOCK_BYTES):
            piece = data[at : at + BLOCK_BYTES].astype(np.uint64) + np.uint64(1)
            total = np.uint64(total + factor * np.uint64(piece @ powers[: len(piece)]))
            factor = np.uint64(factor * powers[len(piece) - 1])
    return total


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return ``x`` after the finaliser of SplitMix64, in which every input bit affects every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)
