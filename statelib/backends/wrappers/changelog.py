"""A keyed backend that keeps a log of the writes since the last checkpoint.

Source: docs/spec/requirements.md R65 to R67; the role of Flink's ChangelogKeyedStateBackend. The log keeps writes as
copies of the Arrow columns in which they arrive; only the last change per key is serialized.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.entries import removed_rows
from statelib.backends.keyed import KeyedStateBackend, StateValues
from statelib.backends.keys.order import byte_order, coded
from statelib.backends.wrappers.wrapped import WrappedBackend
from statelib.formats.changelog.encoder import ChangedRows
from statelib.model.state import StateDescriptor
from statelib.serializers.entries.keys import only_entries
from statelib.serializers.entries.rows import NO_ROWS, StateRows, join_rows
from statelib.serializers.entries.values import encode_values
from statelib.wire.ragged import Ragged, concat

_NOTHING = ChangedRows(NO_ROWS, NO_ROWS.keys)


@dataclass(frozen=True, eq=False)
class _Write:
    """One write to a state, with the number ``position``, in memory of its own. ``keys``, ``values`` and ``removed``
    have one element per key."""

    position: int
    state: str
    keys: Ragged
    values: pa.Array
    removed: npt.NDArray[np.bool_]

    @property
    def size_bytes(self) -> int:
        return _size_bytes(self.keys, self.values)


class ChangelogKeyedStateBackend(WrappedBackend):
    """A :class:`~statelib.backends.keyed.KeyedStateBackend` around another one, ``inner``.

    A position is the number of a write. The log holds at most ``limit_bytes`` of keys and values. If it would grow
    larger, it is emptied, because so large a change is cheaper to write as a whole. :meth:`load` empties it too,
    because loaded entries are not logged."""

    def __init__(self, inner: KeyedStateBackend, limit_bytes: int) -> None:
        super().__init__(inner)
        self._limit_bytes = limit_bytes
        self._writes: list[_Write] = []
        self._size_bytes = 0
        self._position = 0
        self._first = 0

    @property
    def position(self) -> int:
        """The position of the next write."""
        return self._position

    def write(self, before: StateValues, state: str, values: pa.Array, removed: pa.BooleanArray | None = None) -> None:
        self.inner.write(before, state, values, removed)
        position, self._position = self._position, self._position + 1
        self._size_bytes += _size_bytes(before.keys, values)
        if self._size_bytes > self._limit_bytes:
            self._empty_log()
            return
        removed_mask = removed_rows(self.schema.state(state), values, removed)
        # Arrow and numpy copy the rows of a single part, too, and not the whole of which they are a slice.
        self._writes.append(_Write(position, state, concat([before.keys]), pa.concat_arrays([values]), removed_mask))

    def load(self, state: str, rows: StateRows) -> None:
        self.inner.load(state, rows)
        self._position += 1
        self._empty_log()

    def close(self) -> None:
        self._empty_log()
        self.inner.close()

    def changes_since(self, position: int) -> tuple[ChangedRows, ...] | None:
        """Return the last change of each key that was written at ``position`` or later, per state in the schema's
        order; None if the log begins after ``position``."""
        if position < self._first:
            return None
        by_state: dict[str, list[_Write]] = {d.name: [] for d in self.schema.states}
        for write in self._writes:
            if write.position >= position:
                by_state[write.state].append(write)
        return tuple(_coalesced(d, by_state[d.name]) for d in self.schema.states)

    def truncate(self, position: int) -> None:
        """Remove the writes before ``position`` from the log, because a completed checkpoint contains them."""
        self._first = max(self._first, position)
        self._writes = [write for write in self._writes if write.position >= position]
        self._size_bytes = sum(write.size_bytes for write in self._writes)

    def _empty_log(self) -> None:
        self.truncate(self._position)


class DeltaKeyedStateBackend(ChangelogKeyedStateBackend):
    """A backend of a run that has not read the state: ``inner`` is empty in the beginning, so that its values are the
    accumulators of the run's events alone. Its log merges them into the stored values."""

    def __init__(self, inner: KeyedStateBackend) -> None:
        super().__init__(inner, 0)
        self._deleted = concat([])

    def delete(self, keys: Ragged) -> None:
        """Delete the state of distinct keys, which are prefixed with their key groups. No state may be a map, and no
        value may have been written."""
        self._deleted = keys.take(byte_order(keys))

    def write(self, before: StateValues, state: str, values: pa.Array, removed: pa.BooleanArray | None = None) -> None:
        self.inner.write(before, state, values, removed)

    def changes_since(self, position: int) -> tuple[ChangedRows, ...]:
        """Return the deleted keys, and all values as partial ones. ``position`` must be 0: there is one snapshot of
        such a backend."""
        assert position == 0, "a delta has one snapshot"
        return tuple(
            ChangedRows(NO_ROWS, only_entries(d, self._deleted), self._rows(d.name)) for d in self.schema.states
        )

    def _rows(self, state: str) -> StateRows:
        return join_rows(list(self.inner.scan(state)))


def _size_bytes(keys: Ragged, values: pa.Array) -> int:
    """Return the size of the keys and values of a write, without what lies before and after a slice."""
    return int(keys.offsets[-1] - keys.offsets[0]) + int(values.nbytes)


def _coalesced(descriptor: StateDescriptor, writes: list[_Write]) -> ChangedRows:
    """Return the last change of each key, in key order."""
    if not writes:
        return _NOTHING
    codes, distinct = coded(concat([write.keys for write in writes]))
    last = np.zeros(len(distinct), np.int64)
    np.maximum.at(last, codes, np.arange(len(codes), dtype=np.int64))
    order = byte_order(distinct)
    removed = np.concatenate([write.removed for write in writes])[last[order]]
    put = order[~removed]
    values = pa.concat_arrays([write.values for write in writes]).take(pa.array(last[put]))
    rows = StateRows(distinct.take(put), encode_values(descriptor, values))
    return ChangedRows(rows, distinct.take(order[removed]))
