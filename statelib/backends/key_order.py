"""The byte order of serialized keys, computed on columns.

Both backends need it: RocksDB takes key-sorted batches in half the time of unsorted ones, and
every scan hands its entries out in this order.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.wire.ragged import Bytes, Ragged, copy_spans

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
    order = np.argsort(words[0])  # not stable, and some times as fast: in most keys the first word decides
    ordered = words[0][order]
    tied = ordered[1:] == ordered[:-1]
    if bool(tied.any()):
        at = np.flatnonzero(np.append(False, tied) | np.append(tied, False))
        rows = np.sort(order[at])
        order[at] = rows[np.lexsort([word[rows] for word in words[::-1]])]
    return np.asarray(order, np.int64)


def quick_order(keys: Ragged) -> npt.NDArray[np.int64] | None:
    """As :func:`byte_order`, of keys that are all different; None where they are in that order already, and where it
    would cost more than it is worth to those who look for the keys: where a key is more than one number."""
    width = _width(keys)
    words = [] if width is None else _words_that_differ(keys, width)
    return None if len(words) != 1 or _ascending(words) else np.asarray(np.argsort(words[0]), np.int64)


def find_rows(held: Ragged, keys: Ragged) -> npt.NDArray[np.int64]:
    """Row of each of ``keys`` in ``held``, -1 where it is not there; each is unique on its side."""
    rows = _merged(held, keys)
    if rows is not None:
        return rows
    if len(held) <= len(keys):
        return _found(pc.index_in(as_arrow(keys), value_set=as_arrow(held)))
    # The hash table is built over the smaller side: a small batch stays in the processor's cache.
    hits = _found(pc.index_in(as_arrow(held), value_set=as_arrow(keys)))
    at = np.flatnonzero(hits >= 0)
    rows = np.full(len(keys), -1, np.int64)
    rows[hits[at]] = at
    return rows


def _merged(held: Ragged, keys: Ragged) -> npt.NDArray[np.int64] | None:
    """As :func:`find_rows`, without a hash table: where both sides are in ascending order, and a key is one number."""
    width = _width(keys)
    if width is None or width != _width(held):
        return None
    here, wanted = _matrix(held, width), _matrix(keys, width)
    differing = [i for i in range(width) if _differs(here[:, i], here[0, i]) or _differs(wanted[:, i], here[0, i])]
    if len(differing) > _WORD:
        return None
    (asked,) = _packed(wanted, differing)
    if not _ascending([asked]):
        return None
    (there,) = _packed(here, differing)
    if not _ascending([there]):
        return None
    at = np.searchsorted(there, asked)
    found = there[np.minimum(at, len(there) - 1)] == asked
    return np.where(found, at, -1)


def _found(indices: pa.Int32Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(indices, -1), np.int64)


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
    width = _width(keys)
    if width is not None:
        return _words_that_differ(keys, width)
    lengths = keys.lengths
    count = -(-int(lengths.max()) // _WORD)
    padded = np.zeros(len(keys) * count * _WORD, np.uint8)
    starts = np.arange(len(keys), dtype=np.int64) * (count * _WORD)
    copy_spans(keys.data, keys.starts, padded, starts, lengths)
    matrix = padded.view(">u8").reshape(len(keys), count)
    columns = [np.ascontiguousarray(matrix[:, i]).astype(np.uint64) for i in range(count)]
    return [*columns, lengths.astype(np.uint64)]


def _width(keys: Ragged) -> int | None:
    """How long all of them are; None if they differ in that, or there are none, or none has a byte."""
    lengths = keys.lengths
    return int(lengths[0]) if len(keys) and lengths[0] and bool((lengths == lengths[0]).all()) else None


def _words_that_differ(keys: Ragged, width: int) -> list[npt.NDArray[np.uint64]]:
    matrix = _matrix(keys, width)
    return _packed(matrix, [i for i in range(width) if _differs(matrix[:, i], matrix[0, i])])


def _matrix(keys: Ragged, width: int) -> Bytes:
    return keys.data[keys.offsets[0] : keys.offsets[-1]].reshape(len(keys), width)


def _differs(column: Bytes, byte: np.uint8) -> bool:
    return bool((column != byte).any())


def _packed(matrix: Bytes, chosen: list[int]) -> list[npt.NDArray[np.uint64]]:
    """The chosen bytes of each row as big-endian numbers, one at least, padded with zeros."""
    count = max(-(-len(chosen) // _WORD), 1)
    padded = np.zeros((len(matrix), count * _WORD), np.uint8)
    for place, i in enumerate(chosen):
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
