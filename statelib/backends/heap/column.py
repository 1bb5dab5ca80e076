"""The values of a state in memory: an Arrow column in chunks, and how many bytes each of them takes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.wire.ragged import offsets_of

CHUNK_BYTES = 16 * 1024 * 1024
"""Of loaded values that become one chunk: few enough chunks to look through, small enough to be copied once."""
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Column:
    """Arrays of one type, one at least, taken end to end; never changed in place."""

    chunks: list[pa.Array]

    @property
    def type(self) -> pa.DataType:
        return self.chunks[0].type

    @cached_property
    def offsets(self) -> Rows:
        """Where each chunk begins, and the number of all values."""
        return offsets_of(np.array([len(chunk) for chunk in self.chunks], np.int64))

    @cached_property
    def sizes(self) -> npt.NDArray[np.int32]:
        """About how many bytes each value takes, at most 2**31 - 1."""
        return np.concatenate([np.minimum(_sizes(chunk), 0x7FFFFFFF).astype(np.int32) for chunk in self.chunks])

    def take(self, rows: Rows) -> pa.Array:
        """The values of ``rows``, null for -1."""
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
        found = pa.concat_arrays(parts) if parts else self.chunks[0].slice(0, 0)
        if len(found) == len(rows) and bool((owners[1:] >= owners[:-1]).all()):
            return found
        at = np.full(len(rows), -1, np.int64)
        at[order[bounds[0] :]] = np.arange(len(found))
        return found.take(_indices(at))

    def appended(self, chunks: list[pa.Array]) -> "Column":
        """With further chunks behind its own, none of which is copied."""
        filled = [chunk for chunk in (*self.chunks, *chunks) if len(chunk)]
        return Column(filled or self.chunks)


class Loads:
    """Arrays that come one by one, joined to chunks of ``chunk_bytes`` as soon as there are enough of them: so the
    memory of the small ones is free for those that come next."""

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._chunks: list[pa.Array] = []
        self._small: list[pa.Array] = []
        self._small_bytes = 0

    def add(self, array: pa.Array) -> None:
        if self._small_bytes and self._small_bytes + array.nbytes > self._chunk_bytes:
            self._join()
        self._small.append(array)
        self._small_bytes += array.nbytes

    def take(self) -> list[pa.Array]:
        """All of them, in chunks; forgets them."""
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
    """Bytes of each value, those of its children included."""
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
