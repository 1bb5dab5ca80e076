"""A keyed backend that counts the distinct keys that are written through it, over all states, and by how much the
number of keys with state has changed.

The cost grows with the written keys only. The result of the read before a write contains which entries existed, and in
most cases this decides whether the key existed. Only the remaining keys are looked up, once, after the last write.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.entries import removed_rows
from statelib.backends.keyed import KeyedStateBackend, StateValues
from statelib.backends.keys.distinct import one_entry_per_key
from statelib.backends.keys.lookup import grouped
from statelib.backends.wrappers.wrapped import WrappedBackend
from statelib.model.key_groups import prefix_width
from statelib.model.state import KeyCounts, StateDescriptor, key_states
from statelib.serializers.entries.keys import only_entries, prefixed_keys
from statelib.serializers.entries.rows import StateRows, key_groups_of
from statelib.wire.ragged import Ragged, as_arrow, as_ragged, concat

_PENDING_BYTES = 4 << 20
"""The least bytes of serialized keys that are gathered before the rows of equal keys are merged."""
_Counts = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Tally:
    """The counts per written key, one row per key. ``least``: lower bound of the number of entries that the key had
    before the first write. ``more``: the number of entries that the key has now minus the number before the first
    write. ``changed``: whether an event or a timer wrote the key. ``distinct``: whether all rows have different
    keys."""

    keys: pa.LargeBinaryArray
    least: _Counts
    more: _Counts
    changed: _Mask
    distinct: bool

    def __len__(self) -> int:
        return len(self.keys)


_NO_COUNTS = np.empty(0, np.int64)
_NOTHING = _Tally(pa.nulls(0, pa.large_binary()), _NO_COUNTS, _NO_COUNTS, np.empty(0, np.bool_), distinct=True)


class WrittenKeys(WrappedBackend):
    """A :class:`~statelib.backends.keyed.KeyedStateBackend` that counts keys and passes all calls to ``inner``. All
    writes to ``inner`` must go through it.

    ``inner`` must have a state other than timers, which decide nothing about keys. Each distinct written key is held in
    memory once, serialized, with two numbers, and up to three times during a merge. ``keys``: the number of distinct
    keys that have state in ``inner`` now, per key group; None if it is unknown."""

    def __init__(self, inner: KeyedStateBackend, keys: KeyCounts | None = None) -> None:
        super().__init__(inner)
        self._before = keys
        self._empty = keys is not None and not keys.total
        self._counted = [inner.schema.states[i] for i in sorted(key_states(inner.schema))]
        self._alone = len(inner.schema.states) == 1 and one_entry_per_key(inner.schema.states[0])
        self._tally = _NOTHING
        self._pending: list[_Tally] = []
        self._pending_bytes = 0
        self._loaded = False
        self._counts_changes = False

    def write(self, before: StateValues, state: str, values: pa.Array, removed: pa.BooleanArray | None = None) -> None:
        self.inner.write(before, state, values, removed)
        descriptor = self.schema.state(state)
        present = before.present.to_numpy(zero_copy_only=False).astype(np.int64)
        more = ~removed_rows(descriptor, values, removed) - present
        if descriptor not in self._counted:
            present, more = np.zeros_like(present), np.zeros_like(more)
        # If the schema has one entry per key, its composite key identifies the key. Those of the caller are copied.
        own = concat([before.keys]) if self._alone else prefixed_keys(self.schema, descriptor, before.keys)
        keys = as_arrow(own)
        changed = np.full(len(keys), self._counts_changes)
        self._pending.append(_Tally(keys, present, more, changed, distinct=one_entry_per_key(descriptor)))
        self._pending_bytes += keys.nbytes
        if self._pending_bytes > max(_PENDING_BYTES, self._tally.keys.nbytes):
            self._merge()

    def load(self, state: str, rows: StateRows) -> None:
        self.inner.load(state, rows)
        self._loaded = self._loaded or len(rows) > 0

    def count_changes(self) -> None:
        """Count all keys that are written after this call as changed."""
        self._counts_changes = True

    @property
    def keys_changed(self) -> int | None:
        """Number of distinct keys that were written since :meth:`count_changes`; None if it was not called."""
        self._merge()
        return int(self._tally.changed.sum()) if self._counts_changes else None

    def keys_after(self) -> KeyCounts | None:
        """Return the number of distinct keys that have state now, per key group. None if it was unknown when this
        object was created, or if entries were loaded since."""
        before = self._before
        if before is None or self._loaded:
            return None
        self._merge()
        existed, exist = self._existence()
        groups = key_groups_of(as_ragged(self._tally.keys), prefix_width(self.schema.max_parallelism))
        size, groups = len(before.keys), groups - self.key_group_range.start
        new = np.bincount(groups[exist & ~existed], minlength=size)
        gone = np.bincount(groups[existed & ~exist], minlength=size)
        return KeyCounts(before.key_group_range, before.keys + new - gone)

    def _existence(self) -> tuple[_Mask, _Mask]:
        """Return, per written key, whether it had entries before the first write, and whether it has entries now."""
        least, more = self._tally.least, self._tally.more
        if self._empty or self._alone:
            before = np.zeros(len(least), np.int64) if self._empty else least
            return before > 0, before + more > 0
        existed, exist = least > 0, (more > 0) | (least + more > 0)
        unsure = np.flatnonzero(~(existed & exist) & (more != 0))  # as many entries as before: no key came or went
        if len(unsure):
            now = self._count_entries(as_ragged(self._tally.keys).take(unsure), np.maximum(more[unsure], 0) + 1)
            existed[unsure], exist[unsure] = now > more[unsure], now > 0
        return existed, exist

    def _count_entries(self, keys: Ragged, enough: _Counts) -> _Counts:
        """Return the number of entries per key in the states that decide which keys there are. The count of a key stops
        at its number in ``enough``."""
        counts = np.zeros(len(keys), np.int64)
        for descriptor in self._counted:
            undecided = np.flatnonzero(counts < enough)
            if not len(undecided):
                break
            counts[undecided] += self._count_in(descriptor, keys.take(undecided), (enough - counts)[undecided])
        return counts

    def _count_in(self, descriptor: StateDescriptor, keys: Ragged, most: _Counts) -> _Counts:
        """Return the number of entries per key in one state."""
        if one_entry_per_key(descriptor):
            entries = only_entries(descriptor, keys)
            present = self.inner.read(descriptor.name, entries).present
            return np.asarray(present.to_numpy(zero_copy_only=False), np.int64)
        return self.inner.count_entries(descriptor.name, keys, most)

    def _merge(self) -> None:
        if self._pending:
            self._tally = _merged([self._tally, *self._pending])
            self._pending, self._pending_bytes = [], 0


def _merged(parts: list[_Tally]) -> _Tally:
    """Return one tally with one row per key. ``parts``: tallies in the order of time; the keys of the first are
    distinct."""
    if not len(parts[0]) and len(parts) == 2 and parts[1].distinct:
        return parts[1]
    keys = as_ragged(pa.concat_arrays([part.keys for part in parts]))
    order, starts = grouped(keys)
    least, more, changed = (
        np.concatenate([getattr(part, name) for part in parts])[order] for name in ("least", "more", "changed")
    )
    earlier = np.cumsum(more) - more
    earlier -= np.repeat(earlier[starts], np.diff(np.append(starts, len(order))))
    return _Tally(
        as_arrow(keys.take(order[starts])),
        np.maximum.reduceat(least - earlier, starts),
        np.add.reduceat(more, starts),
        np.logical_or.reduceat(changed, starts),
        distinct=True,
    )
