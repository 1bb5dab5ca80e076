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
_MOVED_BYTES = 2 << 20
"""Bytes of rows of different lengths that are moved at once, those of one length after those of another."""
_FEW = 25
"""Rows of one length that are moved one by one in the time that it takes to begin to move many."""


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
    if len(lengths) and bool((lengths == lengths[0]).all()):
        return Ragged(spans(data, starts, int(lengths[0])).reshape(-1), offsets)
    out = np.empty(int(offsets[-1]), np.uint8)
    copy_spans(data, starts, out, offsets[:-1], lengths)
    return Ragged(out, offsets)


def spans(data: Bytes, starts: npt.NDArray[np.integer], length: int) -> Bytes:
    """Spans of one length as a matrix (rows, length): each is one item, which numpy copies at once."""
    if not length:
        return np.empty((len(starts), 0), np.uint8)
    found: Bytes = _everywhere(data, length)[starts].view(np.uint8).reshape(-1, length)
    return found


def rows_by_length(lengths: npt.NDArray[np.integer]) -> list[npt.NDArray[np.int64]] | None:
    """Rows of equal length together, in ascending order; None where that makes so many groups of so few rows that
    one row after the other is cheaper."""
    short = len(lengths) > 0 and int(lengths.max()) <= np.iinfo(np.uint16).max  # which numpy sorts by counting
    order = np.argsort(lengths.astype(np.uint16) if short else lengths, kind="stable")
    cuts = np.flatnonzero(np.diff(lengths[order])) + 1
    return np.split(order, cuts) if (len(cuts) + 1) * _FEW <= len(lengths) else None


def copy_spans(
    data: Bytes,
    starts: npt.NDArray[np.integer],
    out: Bytes,
    places: npt.NDArray[np.integer],
    lengths: npt.NDArray[np.integer],
) -> None:
    """Spans of ``data`` to their places in ``out``."""
    for a, b in blocks(offsets_of(lengths), _MOVED_BYTES):
        groups = rows_by_length(lengths[a:b])
        if groups is None:
            _one_by_one(data, starts[a:b], out, places[a:b], lengths[a:b])
            continue
        for rows in groups:
            if length := int(lengths[a + rows[0]]):
                _everywhere(out, length)[places[a:b][rows]] = _everywhere(data, length)[starts[a:b][rows]]


def _one_by_one(
    data: Bytes,
    starts: npt.NDArray[np.integer],
    out: Bytes,
    places: npt.NDArray[np.integer],
    lengths: npt.NDArray[np.integer],
) -> None:
    source, target = data.data, out.data
    for start, place, length in zip(starts.tolist(), places.tolist(), lengths.tolist(), strict=True):
        target[place : place + length] = source[start : start + length]


def _everywhere(data: Bytes, length: int) -> npt.NDArray[np.void]:
    """The span of ``length`` bytes that begins at each byte, without a copy."""
    return np.ndarray((len(data) - length + 1,), f"V{length}", data, 0, (1,))


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
    at = offsets[:-1].copy()
    for part, length in zip(parts, lengths, strict=True):
        copy_spans(part.data, part.starts, data, at, length)
        at += length
    return Ragged(data, offsets)


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
