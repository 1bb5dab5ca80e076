"""The values of a state in memory: an Arrow column in chunks, and the size in bytes of each value."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.wire.ragged import offsets_of

CHUNK_BYTES = 16 * 1024 * 1024
"""The bytes of loaded values that are joined to one chunk. Larger chunks are fewer to search, but joining copies all
values of a chunk."""
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ValueColumn:
    """A column of values as one or more Arrow arrays of one type, one after the other. It is never changed in place."""

    chunks: list[pa.Array]

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the values."""
        return self.chunks[0].type

    @cached_property
    def offsets(self) -> Rows:
        """The row at which each chunk begins, followed by the number of all values."""
        return offsets_of(np.array([len(chunk) for chunk in self.chunks], np.int64))

    @cached_property
    def sizes(self) -> npt.NDArray[np.int32]:
        """The approximate size of each value in bytes, at most 2**31 - 1."""
        return np.concatenate([np.minimum(_sizes(chunk), 0x7FFFFFFF).astype(np.int32) for chunk in self.chunks])

    def take(self, rows: Rows) -> pa.Array:
        """Return the values of ``rows``, null for a row -1."""
        if len(self.chunks) == 1:
            return self.chunks[0].take(_indices(rows))
        owners = np.searchsorted(self.offsets, rows, side="right") - 1
        order = np.argsort(owners, kind="stable")
        bounds = np.searchsorted(owners[order], np.arange(len(self.chunks) + 1))
        parts = [
            chunk.take(pa.array(rows[order[a:b]] - first))
            for chunk, first, a, b in zip(self.chunks, self.offsets[:-1], bounds[:-1], bounds[1:], strict=True)
            if b > a
        ]
        by_chunk = pa.concat_arrays(parts) if parts else self.chunks[0].slice(0, 0)
        if len(by_chunk) == len(rows) and bool((owners[1:] >= owners[:-1]).all()):
            return by_chunk
        at = np.full(len(rows), -1, np.int64)
        at[order[bounds[0] :]] = np.arange(len(by_chunk))
        return by_chunk.take(_indices(at))

    def appended(self, chunks: list[pa.Array]) -> "ValueColumn":
        """Return a column with ``chunks`` after its own. No chunk is copied."""
        filled = [chunk for chunk in (*self.chunks, *chunks) if len(chunk)]
        return ValueColumn(filled or self.chunks)


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


def _indices(rows: Rows) -> pa.Array:
    return pa.array(rows, mask=rows < 0)


def _sizes(values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the approximate size of each value in bytes, including its children."""
    kind = values.type
    if pa.types.is_struct(kind):
        fields = [_sizes(values.field(i)) for i in range(kind.num_fields)]
        return np.asarray(np.sum([np.ones(len(values), np.int64), *fields], axis=0), np.int64)
    if pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_binary(kind):
        return np.asarray(pc.fill_null(pc.binary_length(values), 0), np.int64) + 4
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        children = values.keys if pa.types.is_map(kind) else values.values
        bounds = np.asarray(values.offsets, np.int64)
        sizes = offsets_of(_sizes(children) + (_sizes(values.items) if pa.types.is_map(kind) else 0))
        return np.diff(sizes[bounds]) + 4
    width = 0 if pa.types.is_null(kind) else kind.bit_width // 8
    return np.full(len(values), width + 1, np.int64)
