"""A keyed backend that records which distinct keys are written through it, whatever the state, and how many keys the
state has more or less because of that.

What an interval costs stays what it changes: a write says which of its entries were there before, and that mostly
tells whether the key was. Only keys of which it does not are looked up, once, after the last write.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.distinct_keys import entries_per_key, one_entry_per_key
from statelib.backends.entries import removed_rows
from statelib.backends.key_order import as_arrow, as_ragged
from statelib.backends.keyed import KeyedStateBackend, StateScan, StateValues
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyCounts, KeyedStateSchema, StateDescriptor, StateKind, StateStatistics
from statelib.serializers.keys import only_entries, prefixed_keys
from statelib.serializers.rows import StateRows, key_groups_of
from statelib.wire.ragged import Ragged

_PENDING_BYTES = 4 << 20
"""Least that is gathered before what is known of one key is put together."""
_Counts = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Tally:
    """What is known of keys, row by row. ``least``: the least number of entries that the key had before the first
    write; ``more``: how many entries the key has more now than it had then; ``changed``: whether an event or a timer
    wrote it. ``distinct``: whether every row is another key."""

    keys: pa.LargeBinaryArray
    least: _Counts
    more: _Counts
    changed: _Mask
    distinct: bool

    def __len__(self) -> int:
        return len(self.keys)


_NO_COUNTS = np.empty(0, np.int64)
_NOTHING = _Tally(pa.nulls(0, pa.large_binary()), _NO_COUNTS, _NO_COUNTS, np.empty(0, np.bool_), distinct=True)


class WrittenKeys:
    """A :class:`~statelib.backends.keyed.KeyedStateBackend` around another one, which nobody else writes to meanwhile.

    Each distinct key that is written is held once, serialized, with two numbers, and up to three times for a moment.
    ``empty``: whether the backend has no entries yet."""

    def __init__(self, inner: KeyedStateBackend, *, empty: bool = False) -> None:
        self._inner = inner
        self._empty = empty
        self._alone = len(inner.schema.states) == 1 and one_entry_per_key(inner.schema.states[0])
        self._known = _NOTHING
        self._pending: list[_Tally] = []
        self._pending_bytes = 0
        self._loaded = False
        self._counts_changes = False

    @property
    def schema(self) -> KeyedStateSchema:
        return self._inner.schema

    @property
    def key_group_range(self) -> KeyGroupRange:
        return self._inner.key_group_range

    def read(self, state: str, keys: Ragged) -> StateValues:
        return self._inner.read(state, keys)

    def write(self, before: StateValues, state: str, values: pa.Array, removed: pa.BooleanArray | None = None) -> None:
        self._inner.write(before, state, values, removed)
        descriptor = self.schema.state(state)
        present = before.present.to_numpy(zero_copy_only=False).astype(np.int64)
        more = ~removed_rows(descriptor, values, removed) - present
        # where an entry is all of a key, its whole composite key is as good as the key alone
        keys = as_arrow(before.keys if self._alone else prefixed_keys(self.schema, descriptor, before.keys))
        changed = np.full(len(keys), self._counts_changes)
        self._pending.append(_Tally(keys, present, more, changed, distinct=one_entry_per_key(descriptor)))
        self._pending_bytes += keys.nbytes
        if self._pending_bytes > max(_PENDING_BYTES, self._known.keys.nbytes):
            self._merge()

    def load(self, state: str, rows: StateRows) -> None:
        self._inner.load(state, rows)
        self._loaded = self._loaded or len(rows) > 0

    def scan(self, state: str) -> StateScan:
        return self._inner.scan(state)

    def count_entries(self, state: str, keys: Ragged, most: _Counts) -> _Counts:
        return self._inner.count_entries(state, keys, most)

    def statistics(self) -> tuple[StateStatistics, ...]:
        return self._inner.statistics()

    def close(self) -> None:
        self._inner.close()

    def count_changes(self) -> None:
        """Count the keys that are written from now on as changed."""
        self._counts_changes = True

    @property
    def keys_changed(self) -> int | None:
        """How many distinct keys were written since :meth:`count_changes`; None if it was not called."""
        self._merge()
        return int(self._known.changed.sum()) if self._counts_changes else None

    def keys_after(self, before: KeyCounts | None) -> KeyCounts | None:
        """How many keys the backend has now, if it had ``before`` at first; None where that does not tell."""
        if before is None or self._loaded:
            return None
        self._merge()
        existed, exist = self._existence()
        groups = key_groups_of(as_ragged(self._known.keys), prefix_width(self.schema.max_parallelism))
        size, groups = len(before.keys), groups - self.key_group_range.start
        new = np.bincount(groups[exist & ~existed], minlength=size)
        gone = np.bincount(groups[existed & ~exist], minlength=size)
        return KeyCounts(before.key_group_range, before.keys + new - gone)

    def _existence(self) -> tuple[_Mask, _Mask]:
        """Of each key that was written, whether it had entries before the first write, and whether it has some now."""
        least, more = self._known.least, self._known.more
        if self._empty or self._alone:
            before = np.zeros(len(least), np.int64) if self._empty else least
            return before > 0, before + more > 0
        existed, exist = least > 0, (more > 0) | (least + more > 0)
        unsure = np.flatnonzero(~(existed & exist))
        if len(unsure):
            now = self._counted(as_ragged(self._known.keys).take(unsure), np.maximum(more[unsure], 0) + 1)
            existed[unsure], exist[unsure] = now > more[unsure], now > 0
        return existed, exist

    def _counted(self, keys: Ragged, enough: _Counts) -> _Counts:
        """How many entries each key has in all states, counted until there are ``enough``."""
        found = np.zeros(len(keys), np.int64)
        timers_last = sorted(self.schema.states, key=lambda state: state.kind is StateKind.TIMERS)
        for descriptor in timers_last:
            open_ones = np.flatnonzero(found < enough)
            if not len(open_ones):
                break
            found[open_ones] += self._count_in(descriptor, keys.take(open_ones), (enough - found)[open_ones])
        return found

    def _count_in(self, descriptor: StateDescriptor, keys: Ragged, most: _Counts) -> _Counts:
        if one_entry_per_key(descriptor):
            entries = only_entries(descriptor, keys)
            present = self._inner.read(descriptor.name, entries).present
            return np.asarray(present.to_numpy(zero_copy_only=False), np.int64)
        if descriptor.kind is not StateKind.TIMERS:
            return self._inner.count_entries(descriptor.name, keys, most)
        found = np.zeros(len(keys), np.int64)
        for rows in self._inner.scan(descriptor.name):  # timers are in the order of their moments, not of their keys
            found += entries_per_key(prefixed_keys(self.schema, descriptor, rows.keys), keys)
        return found

    def _merge(self) -> None:
        if self._pending:
            self._known = _merged([self._known, *self._pending])
            self._pending, self._pending_bytes = [], 0


def _merged(parts: list[_Tally]) -> _Tally:
    """One row per key of tallies that follow each other in time, the first of which has each key once."""
    if not len(parts[0]) and len(parts) == 2 and parts[1].distinct:
        return parts[1]
    coded = pa.chunked_array([part.keys for part in parts]).combine_chunks().dictionary_encode()
    codes = np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    least, more, changed = (
        np.concatenate([getattr(part, name) for part in parts])[order] for name in ("least", "more", "changed")
    )
    earlier = np.cumsum(more) - more
    earlier -= np.repeat(earlier[starts], np.diff(np.append(starts, len(order))))
    return _Tally(
        coded.dictionary,
        np.maximum.reduceat(least - earlier, starts),
        np.add.reduceat(more, starts),
        np.logical_or.reduceat(changed, starts),
        distinct=True,
    )
