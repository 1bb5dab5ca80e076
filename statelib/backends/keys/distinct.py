"""Counting the distinct keys of a snapshot, over all states and namespaces, while its entries are read."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.backends.keys.lookup import find_rows, grouped
from statelib.model.key_groups import KeyGroupRange, all_key_groups, prefix_width
from statelib.model.state import KeyCounts, KeyedStateSchema, StateDescriptor, StateKind, key_states, no_keys
from statelib.model.types import VOID
from statelib.serializers.entries.keys import prefixed_keys
from statelib.serializers.entries.rows import StateRows, key_groups_of
from statelib.wire.ragged import Ragged, as_arrow, as_ragged

_PENDING_BYTES = 4 << 20
"""The least bytes of serialized keys that are gathered before duplicates are removed."""


def one_entry_per_key(descriptor: StateDescriptor) -> bool:
    """Return whether the state has at most one entry per key: no map state, no namespaces, no timers."""
    plain = descriptor.user_key_type is None and descriptor.namespace_type == VOID
    return plain and descriptor.kind is not StateKind.TIMERS


def entries_per_key(entries: Ragged, keys: Ragged) -> npt.NDArray[np.int64]:
    """Return the number of ``entries`` with each of ``keys``, as int64. Both are key group and key as from
    :func:`prefixed_keys`; ``keys`` are distinct."""
    order, starts = grouped(entries)
    rows = find_rows(entries.take(order[starts]), keys)
    counts = np.append(np.diff(starts, append=len(order)), 0)
    return np.asarray(counts[rows], np.int64)  # row -1, of a key without entries, is the 0 at the end


class KeyCounter:
    """The counter of the distinct keys of the entries that are passed to it, in any order.

    Entries that decide nothing about keys are left out (see :func:`~statelib.model.state.key_states`, also for
    ``with_timers``). ``parts``: ranges of key groups that are read one after the other, as the handles of a snapshot
    are. Each distinct serialized key of a range is held in memory once, and twice during a merge, until the next range
    begins or :meth:`finish_part` is called. If the schema has a single state with one entry per key, no keys are held,
    because the number of entries is the number of keys."""

    def __init__(
        self, schema: KeyedStateSchema, parts: Sequence[KeyGroupRange] = (), *, with_timers: bool = False
    ) -> None:
        self._schema = schema
        self._with_timers, self._states = with_timers, key_states(schema, with_timers=with_timers)
        self._width = prefix_width(schema.max_parallelism)
        self._whole = all_key_groups(schema.max_parallelism)
        self._parts = parts
        self._part: KeyGroupRange | None = None
        self._counts = no_keys(self._whole).keys
        self._alone = len(schema.states) == 1 and one_entry_per_key(schema.states[0])
        self._distinct: pa.LargeBinaryArray = pa.nulls(0, pa.large_binary())
        self._pending: list[pa.LargeBinaryArray] = []
        self._pending_bytes = 0

    def add(self, state: int, rows: StateRows) -> None:
        """Count the keys of ``rows``, which are entries of the state with index ``state`` in the schema."""
        if not len(rows) or state not in self._states:
            return
        if self._alone:
            self._counts += np.bincount(key_groups_of(rows.keys, self._width), minlength=len(self._whole))
            return
        self._begin_part(int(key_groups_of(rows.keys.slice(0, 1), self._width)[0]))
        keys = as_arrow(prefixed_keys(self._schema, self._schema.states[state], rows.keys))
        self._pending.append(keys)
        self._pending_bytes += keys.nbytes
        if self._pending_bytes > max(_PENDING_BYTES, self._distinct.nbytes):
            self._merge()

    def passing(self, entries: Iterable[tuple[int, StateRows]]) -> Iterator[tuple[int, StateRows]]:
        """Yield each (index of the state, entries) unchanged and count its keys afterwards."""
        for state, rows in entries:
            yield state, rows
            self.add(state, rows)

    def counts(self, key_groups: KeyGroupRange | None = None) -> KeyCounts:
        """Return the number of distinct keys so far, per key group of ``key_groups`` (None: of all key groups)."""
        self.finish_part()
        counted = KeyCounts(self._whole, self._counts, self._with_timers)
        return counted if key_groups is None else counted.cut(key_groups)

    def _begin_part(self, group: int) -> None:
        if self._part is not None and self._part.start <= group <= self._part.end:
            return
        self.finish_part()
        self._part = next((part for part in self._parts if part.start <= group <= part.end), self._whole)

    def finish_part(self) -> None:
        """Count the keys of the current range and free them. No more entries of this range may follow."""
        self._merge()
        if len(self._distinct):
            groups = key_groups_of(as_ragged(self._distinct), self._width)
            self._counts += np.bincount(groups, minlength=len(self._whole))
        self._distinct = self._distinct.slice(0, 0)

    def _merge(self) -> None:
        if self._pending:
            self._distinct = pc.unique(pa.chunked_array([self._distinct, *self._pending]))
            self._pending, self._pending_bytes = [], 0
