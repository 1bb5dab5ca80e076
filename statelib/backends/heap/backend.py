"""The keyed state backend in memory. Keys and values are serialized columns; a value is decoded when it is read.

Source: docs/spec/requirements.md R3, R5, R29; the role of Flink's HashMapStateBackend.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.entries import (
    add_entries,
    check_loaded_rows,
    check_owned_keys,
    check_write,
    having_prefix,
    removed_rows,
)
from statelib.backends.heap.column import Loads
from statelib.backends.heap.table import HeapTable, Rows, empty_table
from statelib.backends.keyed import StateScan, StateValues
from statelib.backends.keys.distinct import entries_per_key
from statelib.errors import InvalidRequestError
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateStatistics, empty_statistics
from statelib.serializers.entries.keys import prefixed_keys
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import encode_values, value_arrow_type
from statelib.wire.ragged import Ragged, as_arrow, as_ragged, concat, offsets_of

_COUNTED_ANEW = 4
"""A write to more than this fraction (one in N) of a state's entries does not update the statistics. Usually a scan
follows, which counts all entries."""


@dataclass(frozen=True, eq=False)
class HeapCookie:
    """The rows at which a read found its keys, -1 for a missing key. They are valid for ``table`` only."""

    table: HeapTable
    rows: Rows


@dataclass(frozen=True, eq=False)
class _Write:
    """The arguments of :meth:`HeapTable.replaced` for one write, in memory of their own."""

    keys: Ragged
    rows: Rows
    values: Ragged
    removed: npt.NDArray[np.bool_]


@dataclass(eq=False)
class _HeapState:
    """The table of a state, and what is not yet part of it: the last write, and the loaded keys and values.

    A write copies the table only when the state is used again. Nobody uses it again if a snapshot writes only the
    changes. ``statistics``: those of all entries, None if not counted."""

    table: HeapTable
    written: _Write | None = None
    keys: Loads = field(default_factory=Loads)
    values: Loads = field(default_factory=Loads)
    statistics: StateStatistics | None = None

    def joined(self) -> HeapTable:
        """Return the table after the last write, with all loaded entries. They are added together, not one load at a
        time."""
        if self.written is not None:
            write, self.written = self.written, None
            self.table = self.table.replaced(write.keys, write.rows, write.values, write.removed)
        keys = self.keys.take()
        if keys:
            self.table = self.table.appended(keys, self.values.take())
        return self.table


class HeapKeyedStateBackend:
    """A :class:`~statelib.backends.keyed.KeyedStateBackend` in memory.

    A read or scan after a write copies the columns of the state, so a subtask applies few large batches instead of many
    small ones. A frozen view needs no copy: it is the table of that moment.

    ``whole``: the statistics of all entries, per state, if only some of them are loaded and the others are stored
    elsewhere. Loads then do not change the statistics."""

    def __init__(
        self,
        schema: KeyedStateSchema,
        key_group_range: KeyGroupRange,
        *,
        whole: Sequence[StateStatistics] | None = None,
    ) -> None:
        self._schema = schema
        self._range = key_group_range
        self._width = prefix_width(schema.max_parallelism)
        self._states = {d.name: _HeapState(empty_table(d)) for d in schema.states}
        self._is_partial = whole is not None
        for held, statistics in zip(self._states.values(), whole or (), strict=self._is_partial):
            held.statistics = statistics
        self._closed = False

    @property
    def schema(self) -> KeyedStateSchema:
        return self._schema

    @property
    def key_group_range(self) -> KeyGroupRange:
        return self._range

    def read(self, state: str, keys: Ragged) -> StateValues:
        table = self._state(state).joined()
        check_owned_keys(state, keys, self._schema, self._range)
        rows = table.find(keys)
        return StateValues(keys, pa.array(rows >= 0), table.read(rows), HeapCookie(table, rows))

    def write(self, before: StateValues, state: str, values: pa.Array, removed: pa.BooleanArray | None = None) -> None:
        held = self._state(state)
        table = held.joined()
        rows = _rows_of(before, table)
        check_write(table.descriptor, value_arrow_type(table.descriptor), len(before.keys), values)
        removed_mask = removed_rows(table.descriptor, values, removed)
        write = _Write(concat([before.keys]), rows, _encoded(table.descriptor, values, removed_mask), removed_mask)
        held.statistics = self._statistics_after(held, write)
        held.written = write

    def load(self, state: str, rows: StateRows) -> None:
        held = self._state(state)
        check_loaded_rows(state, rows, self._schema, self._range)
        if len(rows):
            held.keys.add(as_arrow(rows.keys))
            held.values.add(as_arrow(rows.values))
            if not self._is_partial:
                held.statistics = None

    def set_statistics(self, statistics: Mapping[str, StateStatistics]) -> None:
        """Set the statistics of the current entries, by state name. They are not checked: the caller has counted the
        entries that it loaded."""
        for state, counted in statistics.items():
            self._state(state).statistics = counted

    def scan(self, state: str) -> StateScan:
        held = self._state(state)
        return HeapScan(self._count_while_scanning(held, held.joined()))

    def keys_with(self, state: str, prefixes: Ragged, prefix_of: Callable[[Ragged], Ragged]) -> Ragged:
        return having_prefix(as_ragged(self._state(state).joined().keys), prefixes, prefix_of)

    def timers_until(self, state: str, until_ms: int) -> Ragged:
        return self._state(state).joined().timers_until(self._width, until_ms)

    def count_entries(self, state: str, keys: Ragged, most: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:  # noqa: ARG002
        table = self._state(state).joined()
        return entries_per_key(prefixed_keys(self._schema, table.descriptor, as_ragged(table.keys)), keys)

    def statistics(self) -> tuple[StateStatistics, ...]:
        return tuple(self._statistics_of(self._state(d.name)) for d in self._schema.states)

    def size_bytes(self) -> int:
        """Return the size in bytes of the columns of all states in memory."""
        return sum(held.joined().size_bytes for held in self._states.values())

    def close(self) -> None:
        self._states.clear()
        self._closed = True

    def _state(self, name: str) -> _HeapState:
        if self._closed:
            raise InvalidRequestError(f"state {name!r}: the backend is closed", kind="backend-closed")
        self._schema.state(name)
        return self._states[name]

    def _count_while_scanning(self, held: _HeapState, table: HeapTable) -> Generator[StateRows, None, None]:
        """Yield the entries of ``table``. If the statistics are unknown, they are when the scan has reached the end."""
        if held.statistics is not None:
            yield from table.batches()
            return
        total = empty_statistics(self._range)
        for rows in table.batches():
            total = add_entries(total, rows, self._width, 1)
            yield rows
        if held.joined() is table:
            held.statistics = total

    def _statistics_after(self, held: _HeapState, write: _Write) -> StateStatistics | None:
        """Return the statistics after a write; None if the current ones are not counted, or if the write is large."""
        current = held.statistics
        is_large = len(write.removed) * _COUNTED_ANEW > len(held.table)
        if current is None or (is_large and not self._is_partial):
            return None
        present, put = np.flatnonzero(write.rows >= 0), np.flatnonzero(~write.removed)
        before = StateRows(write.keys.take(present), held.table.values.take(write.rows[present]))
        rest = add_entries(current, before, self._width, -1)
        return add_entries(rest, StateRows(write.keys.take(put), write.values.take(put)), self._width, 1)

    def _statistics_of(self, held: _HeapState) -> StateStatistics:
        if held.statistics is None:
            for _ in self._count_while_scanning(held, held.joined()):
                pass
        assert held.statistics is not None, "a scan that reaches the end has counted"
        return held.statistics


class HeapScan:
    """A :class:`~statelib.backends.keyed.StateScan` over an immutable table."""

    def __init__(self, batches: Generator[StateRows, None, None]) -> None:
        self._batches = batches

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StateRows:
        return next(self._batches)

    def close(self) -> None:
        self._batches.close()


def _encoded(descriptor: StateDescriptor, values: pa.Array, removed: npt.NDArray[np.bool_]) -> Ragged:
    """Return the serialized values, without bytes for those that are removed."""
    if not removed.any():
        return encode_values(descriptor, values)
    put = encode_values(descriptor, values.filter(pa.array(~removed)))
    lengths = np.zeros(len(removed), np.int64)
    lengths[~removed] = put.lengths
    return Ragged(put.data[put.offsets[0] :], offsets_of(lengths))


def _rows_of(before: StateValues, table: HeapTable) -> Rows:
    """Return the rows of the keys of a read in the current table. They differ from those of the read if other keys
    have been written since."""
    if isinstance(before.cookie, HeapCookie) and before.cookie.table is table:
        return before.cookie.rows
    return table.find(before.keys)
