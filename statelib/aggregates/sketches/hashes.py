"""The hash that Apache DataSketches computes of a value, on whole columns: MurmurHash3 of 128 bits with seed 9001."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import Grouping, one_array
from statelib.serializers.columns.arrow import byte_rows
from statelib.wire.ragged import Bytes, Ragged, spans

SEED = 9001
Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]

_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_BLOCK, _WORD = 16, 8


def hashed_events(events: pa.Table, column: str, grouping: Grouping) -> tuple[Rows, Words, Words]:
    """Return (group, two halves of the hash) of each event that has a value in the column. Texts and bytes of length 0
    are left out, because DataSketches ignore them."""
    values = one_array(events[column])
    hashed = values.is_valid().to_numpy(zero_copy_only=False)
    if not pa.types.is_integer(values.type):
        hashed &= byte_rows(values).lengths > 0
    if hashed.all():
        return grouping.codes, *sketch_hashes(values)
    rows = np.flatnonzero(hashed)
    return grouping.codes[rows], *sketch_hashes(values.take(pa.array(rows)))


def sketch_hashes(values: pa.Array) -> tuple[Words, Words]:
    """Return the two halves of the hash of each value. Integers are hashed as longs, a text as its UTF-8."""
    if pa.types.is_integer(values.type):
        words = values.cast(pa.int64()).to_numpy().astype("<i8")
        return _hashes(np.ascontiguousarray(words).view(np.uint8).reshape(-1, _WORD))
    rows = byte_rows(values)
    first, second = np.zeros(len(rows), np.uint64), np.zeros(len(rows), np.uint64)
    for length, same_length in _by_length(rows):
        matrix = spans(rows.data, rows.starts[same_length], length)
        first[same_length], second[same_length] = _hashes(matrix)
    return first, second


def _by_length(rows: Ragged) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Return the row numbers of each length."""
    order = np.argsort(rows.lengths, kind="stable")
    lengths, starts = np.unique(rows.lengths[order], return_index=True)
    counts = np.diff(starts, append=len(order))
    groups = zip(lengths.tolist(), starts.tolist(), counts.tolist(), strict=True)
    return [(length, order[start : start + count]) for length, start, count in groups]


def _hashes(matrix: Bytes) -> tuple[Words, Words]:
    """Return the hashes of rows of equal length."""
    rows, length = matrix.shape
    padded = np.zeros((rows, -(-length // _BLOCK) * _BLOCK), np.uint8)
    padded[:, :length] = matrix
    words = padded.view("<u8")
    h1, h2 = np.full(rows, SEED, np.uint64), np.full(rows, SEED, np.uint64)
    whole = length // _BLOCK
    for block in range(whole):
        h1 ^= _mixed(words[:, 2 * block], _C1, 31, _C2)
        h1 = (_rotated(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        h2 ^= _mixed(words[:, 2 * block + 1], _C2, 33, _C1)
        h2 = (_rotated(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
    if length % _BLOCK:  # the bytes that are missing in the last block are zeros, which mix to zero
        h2 ^= _mixed(words[:, 2 * whole + 1], _C2, 33, _C1)
        h1 ^= _mixed(words[:, 2 * whole], _C1, 31, _C2)
    h1, h2 = h1 ^ np.uint64(length), h2 ^ np.uint64(length)
    h1 = h1 + h2
    h2 = h2 + h1
    h1, h2 = _finished(h1), _finished(h2)
    h1 = h1 + h2
    return h1, h2 + h1


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _mixed(words: Words, first: np.uint64, bits: int, second: np.uint64) -> Words:
    return _rotated(words * first, bits) * second


def _finished(words: Words) -> Words:
    shift = np.uint64(33)
    words = (words ^ (words >> shift)) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> shift)) * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ (words >> shift)
