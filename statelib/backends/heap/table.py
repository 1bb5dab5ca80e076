"""The table that holds one state in memory: serialized keys and values in columns. It is immutable."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.entries import SCAN_BYTES, SCAN_ROWS
from statelib.backends.heap.column import ValueColumn
from statelib.backends.keys.lookup import find_rows
from statelib.backends.keys.order import byte_order
from statelib.model.state import StateDescriptor
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.timers import due_timers
from statelib.serializers.entries.values import decode_values
from statelib.wire.ragged import EqualRows, Ragged, as_arrow, as_ragged, blocks, concat, offsets_of

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HeapTable:
    """The entries of one state. Row ``i`` has the key ``keys[i]`` and value ``i`` of the column ``values``. The keys
    are distinct and in no particular order.

    A table is never changed in place: a write makes a new table, so that a reference to a table is a frozen view. A
    restore adds values in chunks, which are not copied; a write joins them to one chunk."""

    descriptor: StateDescriptor
    keys: pa.LargeBinaryArray
    values: ValueColumn

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size_bytes(self) -> int:
        """Size in bytes of the keys and values in memory."""
        return sum(int(array.nbytes) for array in (self.keys, *self.values.chunks))

    @cached_property
    def _key_rows(self) -> Ragged:
        rows = as_ragged(self.keys)
        return EqualRows(rows.matrix) if rows.width else rows

    def find(self, keys: Ragged) -> Rows:
        """Return the row of each key; -1 if the table does not have the key."""
        return find_rows(self._key_rows, keys)

    def read(self, rows: Rows) -> pa.Array:
        """Return the decoded values of ``rows``, null for a row -1."""
        present = rows >= 0
        values = decode_values(self.descriptor, self.values.take(rows[present]))
        if len(values) == len(rows):
            return values
        return values.take(pa.array(np.cumsum(present) - 1, mask=~present))

    def replaced(self, keys: Ragged, rows: Rows, values: Ragged, removed: npt.NDArray[np.bool_]) -> "HeapTable":
        """Return a table in which ``keys`` have ``values``, without the keys that are true in ``removed``, whose values
        have no bytes. ``rows``: the rows of ``keys`` in this table, -1 for a new key."""
        present = rows >= 0
        overwritten = None if removed.any() else self.values.overwritten(values, rows)
        if overwritten is not None:
            new_keys = _joined(self.keys, keys.take(np.flatnonzero(~present)))
            return HeapTable(self.descriptor, new_keys, overwritten)
        put = np.flatnonzero(~removed)
        written = Ragged(values.data, np.append(values.offsets[put], values.offsets[-1]))
        places, updates = len(self) + np.arange(len(put)), present[put]
        source = np.arange(len(self), dtype=np.int64)
        source[rows[put[updates]]] = places[updates]
        keep = np.ones(len(self), np.bool_)
        keep[rows[present & removed]] = False
        from_values = np.concatenate([source[keep], places[~updates]])
        new_keys = _joined(_filtered(self.keys, keep), keys.take(put[~updates]))
        return HeapTable(self.descriptor, new_keys, self.values.replaced(written, from_values))

    def appended(self, keys: list[pa.LargeBinaryArray], values: list[pa.LargeBinaryArray]) -> "HeapTable":
        """Return a table with further rows after its own. The table must not have any of their keys. The list ``keys``
        is emptied, to free its arrays one by one."""
        return HeapTable(self.descriptor, _joined_keys(self.keys, keys), self.values.appended(values))

    def timers_until(self, prefix_width: int, until_ms: int) -> Ragged:
        """Return the keys of the timers up to and including ``until_ms``, in ascending order. ``prefix_width``: the
        size in bytes of a key group."""
        due = due_timers(self._key_rows, prefix_width, until_ms)
        return due.take(byte_order(due))

    @cached_property
    def order(self) -> Rows:
        """The row numbers in ascending key order."""
        return byte_order(self._key_rows)

    def batches(self) -> Iterator[StateRows]:
        """Yield all entries, serialized, in ascending key order."""
        keys = self._key_rows
        for start in range(0, len(self), SCAN_ROWS):
            rows = self.order[start : start + SCAN_ROWS]
            sizes = keys.lengths_of(rows) + self.values.sizes[rows]
            for a, b in blocks(offsets_of(sizes), SCAN_BYTES):
                part = rows[a:b]
                yield StateRows(keys.take(part), self.values.take(part))


def empty_table(descriptor: StateDescriptor) -> HeapTable:
    """Return a table without entries."""
    nothing = pa.array([], pa.large_binary())
    return HeapTable(descriptor, nothing, ValueColumn([nothing]))


def _joined_keys(first: pa.LargeBinaryArray, others: list[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    """Return the keys of all arrays as one array. ``others`` is emptied: each array is freed after it is copied."""
    lengths = [as_ragged(keys).lengths for keys in (first, *others)]
    offsets = offsets_of(np.concatenate(lengths))
    data = np.empty(int(offsets[-1]), np.uint8)
    at = 0
    others.insert(0, first)
    while others:
        rows = as_ragged(others.pop(0))
        piece = rows.data[rows.offsets[0] : rows.offsets[-1]]
        data[at : at + len(piece)] = piece
        at += len(piece)
    return as_arrow(Ragged(data, offsets))


def _joined(keys: pa.LargeBinaryArray, more: Ragged) -> pa.LargeBinaryArray:
    """Return the keys with more of them at the end."""
    return as_arrow(concat([as_ragged(keys), more])) if len(more) else keys


def _filtered(keys: pa.LargeBinaryArray, keep: npt.NDArray[np.bool_]) -> pa.LargeBinaryArray:
    return keys if bool(keep.all()) else keys.filter(pa.array(keep))
