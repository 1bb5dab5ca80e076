"""Columns of stored sketches: one sketch per row, null for a key without one. A sketch is a head and its entries, both
of which are numbers of one width."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import valid_rows
from statelib.serializers.columns.arrow import byte_array, byte_rows
from statelib.wire.ragged import Bytes, Ragged, gather, offsets_of, spans
from statelib.wire.sorting import order_of

_ROWS_AT_ONCE = 1 << 14
Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class StoredSketches:
    """The sketches of a column that are not null: the row of each, and where its bytes are in ``data``."""

    rows: Rows
    data: Bytes
    starts: Rows
    lengths: Rows

    @classmethod
    def of(cls, column: pa.Array) -> "StoredSketches":
        rows = valid_rows([column])
        stored = byte_rows(column)
        return cls(rows, stored.data, stored.starts[rows], stored.lengths[rows])

    def __len__(self) -> int:
        return len(self.rows)

    def taken(self, which: Rows | Flags) -> "StoredSketches":
        """Return some of the sketches."""
        return StoredSketches(self.rows[which], self.data, self.starts[which], self.lengths[which])

    def spans(self, skipped: int, length: int) -> Bytes:
        """Return ``length`` bytes of each sketch, after the first ``skipped`` ones, as a matrix."""
        return spans(self.data, self.starts + skipped, length)

    def copied(self) -> Ragged:
        """Return the bytes of each sketch."""
        return gather(self.data, self.starts, self.lengths)

    def entries(self, heads: Rows | int, dtype: str) -> tuple[Rows, npt.NDArray[Any]]:
        """Return (row, number) of each entry. ``heads`` is the number of bytes before the entries of each sketch; the
        other bytes are a whole number of entries."""
        counts = (self.lengths - heads) // np.dtype(dtype).itemsize
        entries = gather(self.data, self.starts + heads, self.lengths - heads)
        return np.repeat(self.rows, counts), entries.data.view(dtype)


def sketch_column(
    heads: Sequence[npt.NDArray[Any]], head_lengths: Rows, entries: npt.NDArray[Any], counts: Rows, empty: Flags
) -> pa.Array:
    """Return sketches with these heads and entries, and null in the rows that are ``empty``.

    ``heads`` are the first, the second, … number of each head, of which a sketch has as many as ``head_lengths`` says.
    ``counts`` are the numbers of entries."""
    head_lengths = np.where(empty, 0, head_lengths)
    offsets = offsets_of(head_lengths + counts)
    numbers = np.empty(int(offsets[-1]), entries.dtype)
    for place, column in enumerate(heads):
        rows = np.flatnonzero(head_lengths > place)
        numbers[offsets[rows] + place] = column[rows]
    before = offsets[:-1] + head_lengths - offsets_of(counts)[:-1]
    numbers[np.repeat(before, counts) + np.arange(len(entries))] = entries
    width = entries.dtype.itemsize
    return null_where(empty, byte_array(Ragged(numbers.view(np.uint8), width * offsets), pa.binary()))


def merged_in_parts(merge: Callable[[pa.Array, pa.Array], pa.Array], before: pa.Array, more: pa.Array) -> pa.Array:
    """Return what ``merge`` makes of two columns, row by row. It gets some rows at a time.

    The memory of one part then serves the next part. New memory for all rows would take longer than the computation."""
    starts = range(0, len(before), _ROWS_AT_ONCE)
    parts = [merge(before.slice(start, _ROWS_AT_ONCE), more.slice(start, _ROWS_AT_ONCE)) for start in starts]
    return pa.concat_arrays(parts) if parts else before


def folded_in_parts(
    fold: Callable[[pa.Array, Rows, npt.NDArray[Any]], pa.Array],
    before: pa.Array,
    codes: Rows,
    values: npt.NDArray[Any],
) -> pa.Array:
    """Return what ``fold`` makes of a column of sketches and of values that are added to them. ``codes`` are the rows
    that get the values, in any order. As in :func:`merged_in_parts`, it gets some rows at a time."""
    part = codes // _ROWS_AT_ONCE
    order, starts = order_of(part.view(np.uint64)), range(0, len(before), _ROWS_AT_ONCE)
    bounds, codes, values = offsets_of(np.bincount(part, minlength=len(starts))), codes[order], values[order]
    parts = [
        fold(before.slice(start, _ROWS_AT_ONCE), codes[a:b] - start, values[a:b])
        for start, a, b in zip(starts, bounds[:-1], bounds[1:], strict=True)
    ]
    return pa.concat_arrays(parts) if parts else before


def null_where(empty: Flags, column: pa.Array) -> pa.Array:
    """Return a column of sketches that was just made, with null in the rows that are ``empty``."""
    if not empty.any():
        return column
    _, offsets, data = column.buffers()
    valid = pa.array(~empty).buffers()[1]
    return pa.Array.from_buffers(column.type, len(column), [valid, offsets, data])
