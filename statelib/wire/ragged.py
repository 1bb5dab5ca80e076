"""Ragged: rows of bytes of different lengths as two numpy arrays, and the moves made with them.

This is the shape in which serialized keys and values travel: no Python object per row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

BLOCK_BYTES = 256 * 1024
"""Bytes of rows that are moved with an index a byte at a time: the index takes 24 times as much, and should stay in
the processor's cache."""
_LONG = 256
"""Bytes of a row from which on a slice a row costs less than an index a byte."""


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row ``i`` is ``data[offsets[i]:offsets[i + 1]]``.

    ``data``: uint8; ``offsets``: int64, n + 1 long, never decreasing; ``offsets[0]`` need not be 0.
    """

    data: Bytes
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def starts(self) -> Offsets:
        return self.offsets[:-1]

    @property
    def lengths(self) -> Offsets:
        return np.diff(self.offsets)

    def take(self, rows: npt.NDArray[np.integer]) -> "Ragged":
        """The given rows, in the given order."""
        return gather(self.data, self.offsets[rows], self.lengths_of(rows))

    def lengths_of(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Of the given rows, none counted from the end; how many others there are does not matter."""
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows], np.int64)

    def slice(self, start: int, stop: int) -> "Ragged":
        """Rows ``start`` to ``stop`` (exclusive), without a copy."""
        return Ragged(self.data, self.offsets[start : stop + 1])

    def to_list(self) -> list[bytes]:
        """One ``bytes`` a row: only for libraries that take nothing else."""
        width = int(self.offsets[1] - self.offsets[0]) if len(self) else 0
        if width and is_equally_spaced(self.offsets, width):
            items: list[bytes] = np.ascontiguousarray(_bytes(self)).view(f"V{width}").tolist()
            return items
        raw = self.data.tobytes()
        return [raw[a:b] for a, b in pairwise(self.offsets.tolist())]


def from_list(rows: Sequence[bytes]) -> Ragged:
    """The inverse of :meth:`Ragged.to_list`."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
    return Ragged(np.frombuffer(b"".join(rows), np.uint8), offsets)


def offsets_of(lengths: npt.NDArray[np.integer]) -> Offsets:
    """Lengths to offsets that start at 0."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def positions(starts: npt.NDArray[np.integer], lengths: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Index of every byte of the given spans, span after span."""
    offsets = offsets_of(lengths)
    return np.repeat(np.asarray(starts, np.int64) - offsets[:-1], lengths) + np.arange(offsets[-1], dtype=np.int64)


def blocks(offsets: Offsets, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, int]]:
    """Runs [start, stop) of rows, together at most ``block_bytes`` unless it is one row."""
    start, rows = 0, len(offsets) - 1
    while start < rows:
        stop = int(np.searchsorted(offsets, offsets[start] + block_bytes, side="right")) - 1
        stop = min(max(stop, start + 1), rows)
        yield start, stop
        start = stop


def gather(data: Bytes, starts: npt.NDArray[np.integer], lengths: npt.NDArray[np.integer]) -> Ragged:
    """Copy spans of ``data`` out into a Ragged of their own; what it needs besides that is bounded."""
    offsets = offsets_of(lengths)
    if offsets[-1] >= _LONG * max(len(lengths), 1):
        view = data.data
        spans = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        return Ragged(np.frombuffer(bytearray().join([view[a:b] for a, b in spans]), np.uint8), offsets)
    rows = _from_matrix(data, starts, lengths)
    if rows is not None:
        return rows
    if offsets[-1] <= BLOCK_BYTES:
        return Ragged(data[positions(starts, lengths)], offsets)
    out = np.empty(int(offsets[-1]), np.uint8)
    for a, b in blocks(offsets):
        out[offsets[a] : offsets[b]] = data[positions(starts[a:b], lengths[a:b])]
    return Ragged(out, offsets)


def _from_matrix(data: Bytes, starts: npt.NDArray[np.integer], lengths: npt.NDArray[np.integer]) -> Ragged | None:
    """Spans that are rows of one matrix, which needs no index a byte; None where they are not."""
    width = int(lengths[0]) if len(lengths) else 0
    if not width or bool((lengths != width).any()):
        return None
    begin = int(starts[0]) % width
    rows = (starts - begin) // width
    if bool((rows * width + begin != starts).any()):
        return None
    end = begin + (len(data) - begin) // width * width
    return from_fixed(data[begin:end].reshape(-1, width).take(rows, axis=0))


def from_fixed(matrix: Bytes) -> Ragged:
    """Rows of equal length: ``matrix`` is uint8 of shape (rows, width)."""
    rows, width = matrix.shape
    if width and matrix.strides[1] == 1 and not matrix.flags.c_contiguous:
        matrix = _items(matrix).copy().view(np.uint8)
    return Ragged(np.ascontiguousarray(matrix).reshape(-1), np.arange(rows + 1, dtype=np.int64) * width)


def side_by_side(matrices: Sequence[Bytes]) -> Bytes:
    """As ``np.hstack`` of uint8 matrices, some times faster; one with a single row stands for as many as the others
    have."""
    rows, widths = max(len(matrix) for matrix in matrices), [matrix.shape[1] for matrix in matrices]
    whole, at = np.empty((rows, sum(widths)), np.uint8), 0
    for matrix, width in zip(matrices, widths, strict=True):
        if width:
            _items(whole[:, at : at + width])[...] = _items(matrix)
        at += width
    return whole


def _items(matrix: Bytes) -> npt.NDArray[np.void]:
    """Each row as one item, which numpy copies at once instead of byte by byte."""
    return matrix.view(f"V{matrix.shape[1]}")


def is_equally_spaced(places: npt.NDArray[np.integer], step: int) -> bool:
    """Whether each of the places, of which there is one at least, is ``step`` behind the one before."""
    spanned = int(places[-1]) - int(places[0]) == step * (len(places) - 1)  # most that are not are found out here
    return spanned and bool((np.diff(places) == step).all())


def equally_spaced(data: Bytes, first: int, count: int, step: int, dtype: str) -> npt.NDArray[np.generic]:
    """The numbers at ``first``, ``first + step``, ...: all of them inside ``data``; without a copy."""
    return np.ndarray((count,), dtype, data, first, (step,))


def join(parts: Sequence[Ragged]) -> Ragged:
    """Row-wise: row ``i`` of the result is row ``i`` of each part, one after the other.

    All parts have the same number of rows; at least one part.
    """
    lengths = [part.lengths for part in parts]
    if all(len(length) and (length == length[0]).all() for length in lengths):
        return from_fixed(side_by_side([_bytes(part).reshape(len(part), -1) for part in parts]))
    offsets = offsets_of(np.sum(lengths, axis=0))
    data = np.empty(int(offsets[-1]), np.uint8)
    for a, b in blocks(offsets, 4 * BLOCK_BYTES):
        _join_into(data[offsets[a] : offsets[b]], [part.slice(a, b) for part in parts], [n[a:b] for n in lengths])
    return Ragged(data, offsets)


def _join_into(data: Bytes, parts: Sequence[Ragged], lengths: Sequence[Offsets]) -> None:
    # the largest part goes where the others leave room: that needs no index a byte
    largest = int(np.argmax([length.sum() for length in lengths]))
    free = np.ones(len(data), np.bool_)
    at = offsets_of(np.sum(lengths, axis=0))[:-1]
    for i, (part, length) in enumerate(zip(parts, lengths, strict=True)):
        if i != largest:
            where = positions(at, length)
            data[where] = _bytes(part)
            free[where] = False
        at += length
    data[free] = _bytes(parts[largest])


def concat(parts: Sequence[Ragged]) -> Ragged:
    """All rows of the first part, then of the second, and so on; no part gives no rows."""
    lengths = [part.lengths for part in parts]
    data = [_bytes(part) for part in parts]
    if not parts:
        return Ragged(np.empty(0, np.uint8), np.zeros(1, np.int64))
    return Ragged(np.concatenate(data), offsets_of(np.concatenate(lengths)))


def _bytes(rows: Ragged) -> Bytes:
    """The bytes of all rows, without what lies before and after them."""
    return rows.data[rows.offsets[0] : rows.offsets[-1]]
