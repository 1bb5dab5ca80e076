"""A keyed backend that remembers what was written to it: the log of changes since the last checkpoint.

Source: requirements R65 to R67; the role of Flink's ChangelogKeyedStateBackend. Writes are remembered as the
columns they came in; only the last change of a key is ever serialized.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.entries import removed_rows
from statelib.backends.key_order import as_arrow, as_ragged, byte_order
from statelib.backends.keyed import KeyedStateBackend, StateScan, StateValues
from statelib.formats.changelog.encoder import ChangedRows
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateStatistics
from statelib.serializers.rows import NO_ROWS, StateRows
from statelib.serializers.values import encode_values
from statelib.wire.ragged import Ragged, concat

_NOTHING = ChangedRows(NO_ROWS, NO_ROWS.keys)


@dataclass(frozen=True, eq=False)
class _Write:
    """One write, as it was given; ``position``: which one it was."""

    position: int
    state: str
    keys: Ragged
    values: pa.Array
    removed: npt.NDArray[np.bool_]


class ChangelogKeyedStateBackend:
    """A :class:`~statelib.backends.keyed.KeyedStateBackend` around another one, ``inner``.

    Positions count the writes. The log keeps at most ``limit_bytes`` of keys and values: beyond that it forgets
    all, since so much is better written as a whole; so it does when entries are loaded past it."""

    def __init__(self, inner: KeyedStateBackend, limit_bytes: int) -> None:
        self.inner = inner
        self._limit_bytes = limit_bytes
        self._writes: list[_Write] = []
        self._size_bytes = 0
        self._position = 0
        self._first = 0

    @property
    def schema(self) -> KeyedStateSchema:
        return self.inner.schema

    @property
    def key_group_range(self) -> KeyGroupRange:
        return self.inner.key_group_range

    @property
    def position(self) -> int:
        """Of the next write."""
        return self._position

    def read(self, state: str, keys: Ragged) -> StateValues:
        return self.inner.read(state, keys)

    def write(self, before: StateValues, state: str, values: pa.Array, removed: pa.BooleanArray | None = None) -> None:
        self.inner.write(before, state, values, removed)
        gone = removed_rows(self.schema.state(state), values, removed)
        self._writes.append(_Write(self._position, state, before.keys, values, gone))
        self._position += 1
        self._size_bytes += before.keys.data.nbytes + values.nbytes
        if self._size_bytes > self._limit_bytes:
            self._forget_all()

    def load(self, state: str, rows: StateRows) -> None:
        self.inner.load(state, rows)
        self._position += 1
        self._forget_all()

    def scan(self, state: str) -> StateScan:
        return self.inner.scan(state)

    def count_entries(self, state: str, keys: Ragged, most: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.inner.count_entries(state, keys, most)

    def statistics(self) -> tuple[StateStatistics, ...]:
        return self.inner.statistics()

    def close(self) -> None:
        self._forget_all()
        self.inner.close()

    def changes_since(self, position: int) -> tuple[ChangedRows, ...] | None:
        """What the keys became that were written at ``position`` or later, by state in the schema's order; None
        if the log does not reach back so far."""
        if position < self._first:
            return None
        by_state: dict[str, list[_Write]] = {d.name: [] for d in self.schema.states}
        for write in self._writes:
            if write.position >= position:
                by_state[write.state].append(write)
        return tuple(_coalesced(d, by_state[d.name]) for d in self.schema.states)

    def truncate(self, position: int) -> None:
        """Forget the writes before ``position``: they are in a completed checkpoint."""
        self._first = max(self._first, position)
        self._writes = [write for write in self._writes if write.position >= position]
        self._size_bytes = sum(write.keys.data.nbytes + write.values.nbytes for write in self._writes)

    def _forget_all(self) -> None:
        self.truncate(self._position)


def _coalesced(descriptor: StateDescriptor, writes: list[_Write]) -> ChangedRows:
    """The last change of each key, in key order."""
    if not writes:
        return _NOTHING
    keys = concat([write.keys for write in writes])
    coded = as_arrow(keys).dictionary_encode()
    codes = np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)
    distinct = as_ragged(coded.dictionary)
    last = np.zeros(len(distinct), np.int64)
    np.maximum.at(last, codes, np.arange(len(keys), dtype=np.int64))
    order = byte_order(distinct)
    removed = np.concatenate([write.removed for write in writes])[last[order]]
    kept = order[~removed]
    values = pa.concat_arrays([write.values for write in writes]).take(pa.array(last[kept]))
    rows = StateRows(distinct.take(kept), encode_values(descriptor, values))
    return ChangedRows(rows, distinct.take(order[removed]))
