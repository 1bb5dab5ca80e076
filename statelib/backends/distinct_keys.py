"""Counting the distinct keys of a whole state, over all its states and namespaces, as its entries pass by."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.backends.key_order import as_arrow, as_ragged
from statelib.model.key_groups import KeyGroupRange, all_key_groups, prefix_width
from statelib.model.state import KeyCounts, KeyedStateSchema, StateDescriptor, StateKind, no_keys
from statelib.model.types import VOID
from statelib.serializers.keys import prefixed_keys
from statelib.serializers.rows import StateRows, key_groups_of
from statelib.wire.ragged import Ragged

_PENDING_BYTES = 4 << 20
"""Least that is gathered before keys that are there already are left out."""


def one_entry_per_key(descriptor: StateDescriptor) -> bool:
    """Whether no two entries of the state are of one key."""
    plain = descriptor.user_key_type is None and descriptor.namespace_type == VOID
    return plain and descriptor.kind is not StateKind.TIMERS


def entries_per_key(entries: Ragged, keys: Ragged) -> npt.NDArray[np.int64]:
    """How often each of ``keys`` is there among ``entries``; both are what :func:`prefixed_keys` gives, ``keys`` each
    once."""
    found = pc.index_in(as_arrow(entries), value_set=as_arrow(keys)).drop_null()
    return np.bincount(found.to_numpy(zero_copy_only=False), minlength=len(keys)).astype(np.int64)


class KeyCounter:
    """Counts distinct keys of entries that come in any order and number.

    ``parts``: ranges of key groups that come one after the other, as the windows of the handles of a snapshot do. Each
    distinct key of a range is held once, serialized, until the next range begins or :meth:`finish_part`, and up to
    twice for a moment. In a schema of one state with one entry per key nothing is held: its entries are its keys."""

    def __init__(self, schema: KeyedStateSchema, parts: Sequence[KeyGroupRange] = ()) -> None:
        self._schema = schema
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
        """Count entries of the state with that number in the schema."""
        if not len(rows):
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
        """Hand on entries, each batch with the number of its state, that are counted on the way."""
        for state, rows in entries:
            yield state, rows
            self.add(state, rows)

    def counts(self, key_groups: KeyGroupRange | None = None) -> KeyCounts:
        """The keys that came until now, of all key groups or of a range."""
        self.finish_part()
        counted = KeyCounts(self._whole, self._counts)
        return counted if key_groups is None else counted.cut(key_groups)

    def _begin_part(self, group: int) -> None:
        if self._part is not None and self._part.start <= group <= self._part.end:
            return
        self.finish_part()
        self._part = next((part for part in self._parts if part.start <= group <= part.end), self._whole)

    def finish_part(self) -> None:
        """Keep the numbers only: no key of a key group that has come will come again."""
        self._merge()
        if len(self._distinct):
            groups = key_groups_of(as_ragged(self._distinct), self._width)
            self._counts += np.bincount(groups, minlength=len(self._whole))
        self._distinct = self._distinct.slice(0, 0)

    def _merge(self) -> None:
        if self._pending:
            self._distinct = pc.unique(pa.chunked_array([self._distinct, *self._pending]))
            self._pending, self._pending_bytes = [], 0
