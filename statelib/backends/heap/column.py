"""The serialized values of a state in memory, in chunks, and the size in bytes of each value."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.wire.ragged import Ragged, as_arrow, as_ragged, concat, from_fixed, items_of, offsets_of

CHUNK_BYTES = 16 * 1024 * 1024
"""The bytes of loaded values that are joined to one chunk. Larger chunks are fewer to search, but joining copies all
values of a chunk."""
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ValueColumn:
    """Serialized values in one or more arrays, one after the other. They are decoded when they are read. The column is
    never changed in place."""

    chunks: list[pa.LargeBinaryArray]

    @cached_property
    def offsets(self) -> Rows:
        """The row at which each chunk begins, followed by the number of all values."""
        return offsets_of(np.array([len(chunk) for chunk in self.chunks], np.int64))

    @cached_property
    def width(self) -> int | None:
        """The size of each value in bytes, if all have the same and it is not 0; else None."""
        widths = {as_ragged(chunk).width for chunk in self.chunks if len(chunk)}
        return (widths.pop() or None) if len(widths) == 1 else None

    @cached_property
    def sizes(self) -> npt.NDArray[np.int32]:
        """The size of each value in bytes, at most 2**31 - 1."""
        if self.width is not None:
            return np.full(self.offsets[-1], min(self.width, 0x7FFFFFFF), np.int32)
        return np.concatenate(
            [np.minimum(as_ragged(chunk).lengths, 0x7FFFFFFF).astype(np.int32) for chunk in self.chunks]
        )

    def take(self, rows: Rows) -> Ragged:
        """Return the values of ``rows``."""
        if len(self.chunks) == 1 or bool((rows[1:] >= rows[:-1]).all()):
            return self._taken(rows)
        order = np.argsort(rows)
        place = np.empty(len(rows), np.int64)
        place[order] = np.arange(len(rows))
        return self._taken(rows[order]).take(place)

    def _taken(self, rows: Rows) -> Ragged:
        """Return the values of ``rows``, which are in ascending order unless there is only one chunk."""
        bounds = np.searchsorted(rows, self.offsets) if len(self.chunks) > 1 else [0, len(rows)]
        parts = [
            (chunk, slice(a, b), first)
            for chunk, first, a, b in zip(self.chunks, self.offsets[:-1], bounds[:-1], bounds[1:], strict=True)
            if a < b
        ]
        if self.width is None:
            pieces = [as_ragged(chunk.take(pa.array(rows[part] - first))) for chunk, part, first in parts]
            return pieces[0] if len(pieces) == 1 else concat(pieces)
        taken = np.empty((len(rows), self.width), np.uint8)
        for chunk, part, first in parts:
            np.take(items_of(as_ragged(chunk).matrix), rows[part] - first, 0, items_of(taken[part]), mode="clip")
        return from_fixed(taken)

    def appended(self, chunks: list[pa.LargeBinaryArray]) -> "ValueColumn":
        """Return a column with ``chunks`` after its own. No chunk is copied."""
        filled = [chunk for chunk in (*self.chunks, *chunks) if len(chunk)]
        return ValueColumn(filled or self.chunks)

    def overwritten(self, values: Ragged, rows: Rows) -> "ValueColumn | None":
        """Return a column in which ``rows`` have these ``values``; the value of each row -1 is added at the end. Return
        None unless all values have one length."""
        if not len(values) or values.width != self.width or self.width is None:
            return None
        present, length = rows >= 0, int(self.offsets[-1])
        data = np.empty((length + len(rows) - int(np.count_nonzero(present)), self.width), np.uint8)
        np.concatenate([as_ragged(chunk).matrix for chunk in self.chunks], out=data[:length])
        items, new = items_of(data), items_of(values.matrix)
        items[rows[present]] = new[present]
        items[length:] = new[~present]
        return ValueColumn([as_arrow(from_fixed(data))])

    def replaced(self, values: Ragged, rows: Rows) -> "ValueColumn":
        """Return a column of the given rows of this one with ``values`` after it."""
        return ValueColumn([pa.concat_arrays([*self.chunks, as_arrow(values)]).take(pa.array(rows))])


class Loads:
    """A collector of loaded arrays. It joins them to chunks of about ``chunk_bytes`` as soon as there are enough, which
    frees the memory of the small arrays for the next ones."""

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._chunks: list[pa.Array] = []
        self._small: list[pa.Array] = []
        self._small_bytes = 0

    def add(self, array: pa.Array) -> None:
        """Add one array after the others."""
        if self._small_bytes and self._small_bytes + array.nbytes > self._chunk_bytes:
            self._join()
        self._small.append(array)
        self._small_bytes += array.nbytes

    def take(self) -> list[pa.Array]:
        """Return all arrays, joined to chunks, and become empty."""
        if self._small:
            self._join()
        chunks, self._chunks = self._chunks, []
        return chunks

    def _join(self) -> None:
        self._chunks.append(pa.concat_arrays(self._small))
        self._small, self._small_bytes = [], 0
