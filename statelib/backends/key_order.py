"""The byte order of serialized keys, computed on columns.

Both backends need it: RocksDB takes key-sorted batches in half the time of unsorted ones, and
every scan hands its entries out in this order.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.wire.ragged import Ragged, blocks, positions

_WORD = 8
_LONGEST_AS_WORDS = 64
"""Bytes. Longer keys would need too many sort columns; Arrow compares them as bytes instead."""


def byte_order(keys: Ragged) -> npt.NDArray[np.int64]:
    """Row numbers of ``keys`` in ascending byte order (as unsigned bytes, a prefix first); stable."""
    if not len(keys):
        return np.empty(0, np.int64)
    if int(keys.lengths.max()) > _LONGEST_AS_WORDS:
        return np.asarray(pc.sort_indices(as_arrow(keys)), np.int64)
    words = _words(keys)
    if _ascending(words):
        return np.arange(len(keys), dtype=np.int64)
    if len(words) == 1:
        order = np.argsort(words[0])
        ordered = words[0][order]
        if not bool((ordered[1:] == ordered[:-1]).any()):  # then stable or not is the same, and this is much faster
            return np.asarray(order, np.int64)
    return np.asarray(np.lexsort(words[::-1]), np.int64)


def equal_neighbours(keys: Ragged) -> npt.NDArray[np.int64]:
    """The rows whose key is that of the row after them: in sorted keys, those that are there twice."""
    if len(keys) < 2:
        return np.empty(0, np.int64)
    array = as_arrow(keys)
    same = pc.equal(array.slice(0, len(array) - 1), array.slice(1))
    return np.flatnonzero(same.to_numpy(zero_copy_only=False)).astype(np.int64)


def as_arrow(rows: Ragged) -> pa.LargeBinaryArray:
    """The same rows as an Arrow array that shares their memory."""
    offsets = np.ascontiguousarray(rows.offsets, np.int64)
    data = np.ascontiguousarray(rows.data)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def as_ragged(array: pa.LargeBinaryArray) -> Ragged:
    """The rows of an Arrow array without nulls, sharing its memory."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8) if offsets else np.zeros(1, np.int64)
    return Ragged(np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), bounds)


def _words(keys: Ragged) -> list[npt.NDArray[np.uint64]]:
    """Each key as big-endian 64-bit words, padded with zeros, then its length.

    The length comes last: it only decides between keys that differ in trailing zero bytes. Where all are equally long,
    bytes in which they do not differ are left out."""
    lengths = keys.lengths
    if lengths[0] and bool((lengths == lengths[0]).all()):
        return _words_that_differ(keys, int(lengths[0]))
    count = -(-int(lengths.max()) // _WORD)
    padded = np.zeros(len(keys) * count * _WORD, np.uint8)
    starts = np.arange(len(keys), dtype=np.int64) * (count * _WORD)
    for a, b in blocks(keys.offsets):
        padded[positions(starts[a:b], lengths[a:b])] = keys.data[keys.offsets[a] : keys.offsets[b]]
    matrix = padded.view(">u8").reshape(len(keys), count)
    columns = [np.ascontiguousarray(matrix[:, i]).astype(np.uint64) for i in range(count)]
    return [*columns, lengths.astype(np.uint64)]


def _words_that_differ(keys: Ragged, width: int) -> list[npt.NDArray[np.uint64]]:
    matrix = keys.data[keys.offsets[0] : keys.offsets[-1]].reshape(len(keys), width)
    differing = [i for i in range(width) if bool((matrix[:, i] != matrix[0, i]).any())] or [0]
    count = -(-len(differing) // _WORD)
    padded = np.zeros((len(keys), count * _WORD), np.uint8)
    for place, i in enumerate(differing):
        padded[:, place] = matrix[:, i]
    packed = padded.view(">u8")
    return [packed[:, i].astype(np.uint64) for i in range(count)]


def _ascending(words: list[npt.NDArray[np.uint64]]) -> bool:
    """Whether no row is smaller than the one before: then there is nothing to sort."""
    tied = np.ones(len(words[0]) - 1, np.bool_)
    for word in words:
        if bool(np.any(tied & (word[1:] < word[:-1]))):
            return False
        tied &= word[1:] == word[:-1]
    return True
