"""The serialized values of a state in memory, in chunks, and the size in bytes of each value."""

from collections.abc import Sequence
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
    """Serialized values in one or more arrays. They are decoded when they are read. The column is never changed in
    place.

    ``places``: the place of each row's value among the values of the chunks, one after the other; None if the rows are
    these values. A place that no row has holds a value that was replaced."""

    chunks: list[pa.LargeBinaryArray]
    places: Rows | None = None

    @cached_property
    def offsets(self) -> Rows:
        """The place at which each chunk begins, followed by the number of all places."""
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
            rows = self.offsets[-1] if self.places is None else len(self.places)
            return np.full(rows, min(self.width, 0x7FFFFFFF), np.int32)
        sizes = np.concatenate(
            [np.minimum(as_ragged(chunk).lengths, 0x7FFFFFFF).astype(np.int32) for chunk in self.chunks]
        )
        return sizes if self.places is None else sizes[self.places]

    def take(self, rows: Rows) -> Ragged:
        """Return the values of ``rows``."""
        places = rows if self.places is None else self.places[rows]
        if len(self.chunks) == 1:
            return self._taken([places])
        if bool((places[1:] >= places[:-1]).all()):
            return self._taken(np.split(places, np.searchsorted(places, self.offsets[1:-1])))
        chunks = np.searchsorted(self.offsets[1:], places, side="right").astype(np.min_scalar_type(len(self.chunks)))
        order = np.argsort(chunks, kind="stable")  # numpy sorts small numbers by counting
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        cuts = np.searchsorted(chunks[order], np.arange(1, len(self.chunks)))
        return self._taken(np.split(places[order], cuts)).take(position)

    def _taken(self, places: Sequence[Rows]) -> Ragged:
        """Return the values at some places of the first chunk, then at some of the second, and so on."""
        parts = [
            (chunk, part - first)
            for chunk, part, first in zip(self.chunks, places, self.offsets[:-1], strict=True)
            if len(part)
        ]
        if self.width is None:
            pieces = [as_ragged(chunk.take(pa.array(part))) for chunk, part in parts]
            return pieces[0] if len(pieces) == 1 else concat(pieces)
        taken, end = np.empty((sum(map(len, places)), self.width), np.uint8), 0
        for chunk, part in parts:
            begin, end = end, end + len(part)
            np.take(items_of(as_ragged(chunk).matrix), part, 0, items_of(taken[begin:end]), mode="clip")
        return from_fixed(taken)

    def appended(self, chunks: list[pa.LargeBinaryArray]) -> "ValueColumn":
        """Return a column with ``chunks`` after its own. No chunk is copied, unless values were replaced before."""
        own = self._without_places().chunks
        return ValueColumn([chunk for chunk in (*own, *chunks) if len(chunk)] or own)

    def overwritten(self, values: Ragged, rows: Rows) -> "ValueColumn | None":
        """Return a column in which ``rows`` have these ``values``; the value of each row -1 is added at the end. Return
        None unless all values have one length."""
        if not len(values) or values.width != self.width or self.width is None:
            return None
        if self.places is not None:
            return self._without_places().overwritten(values, rows)
        present, length = rows >= 0, int(self.offsets[-1])
        data = np.empty((length + len(rows) - int(np.count_nonzero(present)), self.width), np.uint8)
        np.concatenate([as_ragged(chunk).matrix for chunk in self.chunks], out=data[:length])
        items, new = items_of(data), items_of(values.matrix)
        items[rows[present]] = new[present]
        items[length:] = new[~present]
        return ValueColumn([as_arrow(from_fixed(data))])

    def replaced(self, values: Ragged, rows: Rows) -> "ValueColumn":
        """Return a column of the given rows of this one with ``values`` after it. No value is copied, unless values
        were replaced before: those that are replaced now are left out by the next such call."""
        return ValueColumn([*self._without_places().chunks, as_arrow(values)], rows)

    def _without_places(self) -> "ValueColumn":
        """Return a column of which each value in memory is the value of a row."""
        if self.places is None:
            return self
        return ValueColumn([as_arrow(self.take(np.arange(len(self.places))))])


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
