"""A keyed backend that knows how many distinct keys were written through it, whatever the state."""

import pyarrow as pa
import pyarrow.compute as pc

from statelib.backends.key_order import as_arrow
from statelib.backends.keyed import KeyedStateBackend, StateScan, StateValues
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind, StateStatistics
from statelib.model.types import VOID
from statelib.serializers.keys import serialized_keys
from statelib.serializers.rows import StateRows
from statelib.wire.ragged import Ragged

_PENDING_BYTES = 4 << 20
"""Least that is gathered before keys that are there already are left out."""


class WrittenKeys:
    """A :class:`~statelib.backends.keyed.KeyedStateBackend` around another one. Only :meth:`write` counts, timers
    that are set or fired included; entries that are loaded are not written. Each distinct key is held once, serialized,
    and up to twice for a moment."""

    def __init__(self, inner: KeyedStateBackend) -> None:
        self._inner = inner
        self._distinct: pa.LargeBinaryArray = pa.array([], pa.large_binary())
        self._pending: list[pa.LargeBinaryArray] = []
        self._pending_bytes = 0
        self._written = False
        self._only: tuple[Ragged, StateDescriptor] | None = None
        """The one write until now, of which each row is another key: nothing has to be compared."""

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
        if not self._written and _once_a_key(descriptor):
            self._only = before.keys, descriptor
        else:
            if self._only is not None:
                self._gather(*self._only)
                self._only = None
            self._gather(before.keys, descriptor)
        self._written = True

    def _gather(self, written: Ragged, descriptor: StateDescriptor) -> None:
        keys = as_arrow(serialized_keys(self.schema, descriptor, written))
        self._pending.append(keys)
        self._pending_bytes += keys.nbytes
        if self._pending_bytes > max(_PENDING_BYTES, self._distinct.nbytes):
            self._merge()

    def load(self, state: str, rows: StateRows) -> None:
        self._inner.load(state, rows)

    def scan(self, state: str) -> StateScan:
        return self._inner.scan(state)

    def statistics(self) -> tuple[StateStatistics, ...]:
        return self._inner.statistics()

    def close(self) -> None:
        self._inner.close()

    @property
    def keys_changed(self) -> int:
        """How many distinct keys were written until now."""
        if self._only is not None:
            return len(self._only[0])
        self._merge()
        return len(self._distinct)

    def _merge(self) -> None:
        if self._pending:
            self._distinct = pc.unique(pa.chunked_array([self._distinct, *self._pending]))
            self._pending, self._pending_bytes = [], 0


def _once_a_key(descriptor: StateDescriptor) -> bool:
    """Whether no two entries of the state are of one key."""
    plain = descriptor.user_key_type is None and descriptor.namespace_type == VOID
    return plain and descriptor.kind is not StateKind.TIMERS
