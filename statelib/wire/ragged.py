"""Ragged: rows of bytes of different lengths as two numpy arrays, with the operations that move them.

Serialized keys and values are passed on in this form, without a Python object per row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

BLOCK_BYTES = 256 * 1024
"""The size in bytes of the rows that are moved together with one index entry per byte.

The index takes 24 times as much memory, and should fit the processor's cache.
"""
_MOVED_BYTES = 2 << 20
"""The size in bytes of the rows of different lengths that are moved together, grouped by length."""
_PLACES = 32 * 1024
"""The number of places that are compared at once, so that what is between is small enough for the processor's cache."""
_FEW = 25
"""The number of rows that can be moved one by one in the time that moving one group of equal rows costs in addition."""


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of bytes: row ``i`` is ``data[offsets[i]:offsets[i + 1]]``.

    ``data``: uint8. ``offsets``: int64, shape (rows + 1,), never decreasing; ``offsets[0]`` need not be 0.
    """

    data: Bytes
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def starts(self) -> Offsets:
        """The offset of the first byte of each row. Shape: (rows,)."""
        return self.offsets[:-1]

    @property
    def lengths(self) -> Offsets:
        """The length of each row in bytes. Shape: (rows,)."""
        return np.diff(self.offsets)

    @property
    def width(self) -> int | None:
        """The length that all rows have, in bytes; None if there are no rows or their lengths differ."""
        width = int(self.offsets[1] - self.offsets[0]) if len(self) else None
        return None if width is None or not is_equally_spaced(self.offsets, width) else width

    @property
    def matrix(self) -> Bytes:
        """The bytes of at least one row, without a copy. All rows must have one length. Shape: (rows, width)."""
        return _row_bytes(self).reshape(len(self), -1)

    @property
    def joined(self) -> "Ragged":
        """The rows with the bytes of each side by side, as all rows but :class:`JoinedRows` are."""
        return self

    def take(self, rows: npt.NDArray[np.integer]) -> "Ragged":
        """Return the given rows in the given order, as a copy."""
        lengths = self.lengths_of(rows)
        if _are_equal(lengths):
            return EqualRows(spans(self.data, self.offsets[rows], int(lengths[0])))
        return as_ragged(as_arrow(self).take(pa.array(rows)))

    def lengths_of(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the lengths of the given rows in bytes. The row numbers must not be negative.

        The time depends on the number of given rows alone.
        """
        return np.asarray(self.offsets[rows + 1] - self.offsets[rows], np.int64)

    def slice(self, start: int, stop: int) -> "Ragged":
        """Return rows ``start`` to ``stop`` (exclusive) without a copy."""
        return Ragged(self.data, self.offsets[start : stop + 1])

    def to_list(self) -> list[bytes]:
        """Return one ``bytes`` object per row, for libraries that accept nothing else."""
        if self.width:
            items: list[bytes] = items_of(self.matrix)[:, 0].tolist()
            return items
        raw = self.data.tobytes()
        return [raw[a:b] for a, b in pairwise(self.offsets.tolist())]


class EqualRows(Ragged):
    """Rows of one length: the rows of a matrix of uint8. Their offsets, eight bytes per row, are made only for those
    who ask for them."""

    def __init__(self, matrix: Bytes) -> None:
        data = matrix.reshape(-1)
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "_matrix", data.reshape(matrix.shape))  # so that the bytes of a row lie side by side

    def __len__(self) -> int:
        return len(self.matrix)

    @cached_property
    def offsets(self) -> Offsets:
        rows, width = self.matrix.shape
        return np.arange(0, (rows + 1) * width, width, dtype=np.int64) if width else np.zeros(rows + 1, np.int64)

    @property
    def lengths(self) -> Offsets:
        return np.full(len(self), self.matrix.shape[1], np.int64)

    @property
    def width(self) -> int | None:
        return self.matrix.shape[1] if len(self) else None

    @property
    def matrix(self) -> Bytes:
        matrix: Bytes = self.__dict__["_matrix"]
        return matrix

    def take(self, rows: npt.NDArray[np.integer]) -> Ragged:
        if not self.width:
            return super().take(rows)
        return from_fixed(np.take(items_of(self.matrix), rows, 0).view(np.uint8))

    def lengths_of(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        return np.full(len(rows), self.matrix.shape[1], np.int64)

    def slice(self, start: int, stop: int) -> Ragged:
        return EqualRows(self.matrix[start:stop])


class JoinedRows(Ragged):
    """Rows that are joined of the rows of several parts when someone asks for their bytes. If they are joined with
    others before that, the bytes of all parts are moved once."""

    parts: tuple[Ragged, ...]
    """The parts of the rows, or the rows themselves once they are joined."""

    def __init__(self, parts: Sequence[Ragged]) -> None:
        object.__setattr__(self, "parts", tuple(parts))

    def __len__(self) -> int:
        return len(self.parts[0])

    @property
    def data(self) -> Bytes:
        return self.joined.data

    @property
    def offsets(self) -> Offsets:
        return self.joined.offsets

    @property
    def joined(self) -> Ragged:
        parts = self.parts
        if len(parts) > 1:
            joined = pc.binary_join_element_wise(*map(as_arrow, parts), pa.scalar(b"", pa.large_binary()))
            parts = (as_ragged(joined),)
            object.__setattr__(self, "parts", parts)  # the memory of the others is free
        return parts[0]


def from_list(rows: Sequence[bytes]) -> Ragged:
    """Return the rows as a Ragged; inverse of :meth:`Ragged.to_list`."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
    return Ragged(np.frombuffer(b"".join(rows), np.uint8), offsets)


def offsets_of(lengths: npt.NDArray[np.integer]) -> Offsets:
    """Return the offsets, starting at 0, of rows with these lengths. Shape: (rows + 1,)."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def positions(starts: npt.NDArray[np.integer], lengths: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return the index of every byte of the given spans, span after span."""
    offsets = offsets_of(lengths)
    return np.repeat(np.asarray(starts, np.int64) - offsets[:-1], lengths) + np.arange(offsets[-1], dtype=np.int64)


def blocks(offsets: Offsets, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, int]]:
    """Yield runs of rows (start, stop) that hold at most ``block_bytes`` together. A larger row is a run of its own."""
    start, rows = 0, len(offsets) - 1
    while start < rows:
        stop = int(np.searchsorted(offsets, offsets[start] + block_bytes, side="right")) - 1
        stop = min(max(stop, start + 1), rows)
        yield start, stop
        start = stop


def gather(data: Bytes, starts: npt.NDArray[np.integer], lengths: npt.NDArray[np.integer]) -> Ragged:
    """Return copies of the given spans of ``data``, one per row."""
    if _are_equal(lengths):
        return EqualRows(spans(data, starts, int(lengths[0])))
    bounds = np.empty(2 * len(starts), np.int64)
    bounds[::2], bounds[1::2] = starts, starts + lengths
    if len(starts) and bool((bounds[1:] >= bounds[:-1]).all()):  # every second row is a span, the others lie between
        return as_ragged(as_arrow(Ragged(data, bounds)).take(pa.array(np.arange(0, len(bounds), 2))))
    offsets = offsets_of(lengths)
    out = np.empty(int(offsets[-1]), np.uint8)
    copy_spans(data, starts, out, offsets[:-1], lengths)
    return Ragged(out, offsets)


def _are_equal(lengths: npt.NDArray[np.integer]) -> bool:
    """Return whether there are rows, and all have one length."""
    return len(lengths) > 0 and bool((lengths == lengths[0]).all())


def spans(data: Bytes, starts: npt.NDArray[np.integer], length: int) -> Bytes:
    """Return spans of one length as a matrix of shape (rows, ``length``).

    Each span is one item to numpy, which copies it at once.
    """
    if not length or not len(starts):
        return np.empty((len(starts), length), np.uint8)
    matrix: Bytes = _all_spans(data, length)[starts].view(np.uint8).reshape(-1, length)
    return matrix


def padded(rows: Ragged, size: int) -> tuple[Bytes, Offsets]:
    """Return the bytes of all rows with ``size`` zeros behind them, and the offset of the first byte of each row."""
    return np.append(_row_bytes(rows), np.zeros(size, np.uint8)), rows.starts - rows.offsets[0]


def big_endian_words(data: Bytes, starts: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    """Return the eight bytes at each place as a number whose highest byte is the first."""
    return np.asarray(spans(data, starts, 8).view(">u8").reshape(-1), np.uint64)


def _rows_by_length(lengths: npt.NDArray[np.integer]) -> list[npt.NDArray[np.int64]] | None:
    """Return row numbers grouped by the length of the row, in ascending order of length.

    Return None if the groups would have so few rows on average that moving the rows one by one is cheaper.
    """
    short = len(lengths) > 0 and int(lengths.max()) <= np.iinfo(np.uint16).max  # numpy sorts 16-bit numbers by counting
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
    """Copy spans of ``data`` to ``out``: span ``i`` begins at ``starts[i]`` and is copied to ``places[i]``."""
    alike = _are_equal(lengths)
    for a, b in blocks(offsets_of(lengths), _MOVED_BYTES):
        if alike:
            if length := int(lengths[0]):
                _all_spans(out, length)[places[a:b]] = _all_spans(data, length)[starts[a:b]]
            continue
        groups = _rows_by_length(lengths[a:b])
        if groups is None:
            _one_by_one(data, starts[a:b], out, places[a:b], lengths[a:b])
            continue
        for rows in groups:
            if length := int(lengths[a + rows[0]]):
                _all_spans(out, length)[places[a:b][rows]] = _all_spans(data, length)[starts[a:b][rows]]


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


def _all_spans(data: Bytes, length: int) -> npt.NDArray[np.void]:
    """Return the spans of ``length`` bytes that begin at each byte, without a copy."""
    return np.ndarray((len(data) - length + 1,), f"V{length}", data, 0, (1,))


def from_fixed(matrix: Bytes) -> Ragged:
    """Return rows of equal length; ``matrix`` is uint8 of shape (rows, width)."""
    if matrix.shape[1] and matrix.strides[1] == 1 and not matrix.flags.c_contiguous:
        matrix = items_of(matrix).copy().view(np.uint8)
    return EqualRows(np.ascontiguousarray(matrix))


def side_by_side(matrices: Sequence[Bytes]) -> Bytes:
    """Return uint8 matrices side by side, like ``np.hstack`` but several times faster.

    A matrix with a single row is repeated to the number of rows of the others.
    """
    rows, widths = max(len(matrix) for matrix in matrices), [matrix.shape[1] for matrix in matrices]
    result, at = np.empty((rows, sum(widths)), np.uint8), 0
    for matrix, width in zip(matrices, widths, strict=True):
        if width:
            items_of(result[:, at : at + width])[...] = items_of(matrix)
        at += width
    return result


def items_of(matrix: Bytes) -> npt.NDArray[np.void]:
    """Return each row of at least one byte as one item, which numpy copies at once instead of byte by byte.
    Shape: (rows, 1)."""
    return matrix.view(f"V{matrix.shape[1]}")


def is_equally_spaced(places: npt.NDArray[np.integer], step: int) -> bool:
    """Return whether each place is ``step`` after the place before it. There must be at least one place."""
    spanned = int(places[-1]) - int(places[0]) == step * (len(places) - 1)  # rules out most other places quickly
    return spanned and all(
        bool((np.diff(places[at : at + _PLACES + 1]) == step).all()) for at in range(0, len(places) - 1, _PLACES)
    )


def equally_spaced(data: Bytes, first: int, count: int, step: int, dtype: str) -> npt.NDArray[np.generic]:
    """Return the numbers of type ``dtype`` at ``first``, ``first + step``, and so on, without a copy.

    All ``count`` of them must lie inside ``data``.
    """
    return np.ndarray((count,), dtype, data, first, (step,))


def join(parts: Sequence[Ragged]) -> Ragged:
    """Return the rows of the parts joined row by row: row ``i`` is row ``i`` of each part, one after the other.

    There must be at least one part, and all parts must have the same number of rows.
    """
    flat = chain.from_iterable(part.parts if isinstance(part, JoinedRows) else (part,) for part in parts)
    pieces: list[Ragged] = []
    for are_equal, group in groupby(flat, key=lambda part: part.width is not None):
        some = list(group)
        pieces += [from_fixed(side_by_side([part.matrix for part in some]))] if are_equal and len(some) > 1 else some
    return pieces[0] if len(pieces) == 1 else JoinedRows(pieces)


def concat(parts: Sequence[Ragged]) -> Ragged:
    """Return all rows of the first part, then of the second, and so on. Without any part there are no rows."""
    if not parts:
        return Ragged(np.empty(0, np.uint8), np.zeros(1, np.int64))
    equal = [part.matrix for part in parts if isinstance(part, EqualRows)]
    if len(equal) == len(parts) and len({matrix.shape[1] for matrix in equal}) == 1:
        return EqualRows(np.concatenate(equal))
    lengths = [part.lengths for part in parts]
    data = [_row_bytes(part) for part in parts]
    return Ragged(np.concatenate(data), offsets_of(np.concatenate(lengths)))


def _row_bytes(rows: Ragged) -> Bytes:
    """Return the bytes of all rows, without the bytes before the first row and after the last."""
    return rows.data[rows.offsets[0] : rows.offsets[-1]]


def as_arrow(rows: Ragged) -> pa.LargeBinaryArray:
    """Return the rows as an Arrow array that shares their memory."""
    offsets = np.ascontiguousarray(rows.offsets, np.int64)
    data = np.ascontiguousarray(rows.data)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def as_ragged(array: pa.LargeBinaryArray) -> Ragged:
    """Return the rows of an Arrow array without nulls. They share its memory. Bytes behind the last row, as Arrow may
    have reserved them, are left out."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8) if offsets else np.zeros(1, np.int64)
    return Ragged(np.frombuffer(data, np.uint8, int(bounds[-1])) if data else np.empty(0, np.uint8), bounds)
