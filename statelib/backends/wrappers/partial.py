"""A keyed backend that holds only the entries that it was asked for. All others stay where they are stored."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.backends.entries import check_owned_keys
from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import StateScan, StateValues
from statelib.backends.wrappers.wrapped import WrappedBackend
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateStatistics
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import Ragged, as_arrow


class StoredEntries(Protocol):
    """The stored entries of a backend, of which single ones can be read."""

    @property
    def size_bytes(self) -> int:
        """The number of bytes that have been read so far."""
        ...

    def find(self, state: str, keys: Ragged) -> StateRows:
        """Return the entries of distinct keys. Keys without an entry are left out."""
        ...

    def find_prefixed(self, state: str, prefixes: Ragged) -> StateRows:
        """Return the entries of distinct ``prefixes``: key group and key as from
        :func:`~statelib.serializers.entries.keys.prefixed_keys`."""
        ...

    def close(self) -> None:
        """Release what reading needs."""
        ...


class PartialKeyedStateBackend(WrappedBackend):
    """A :class:`~statelib.backends.keyed.KeyedStateBackend` that reads an entry of ``stored`` when it is first asked
    for. :meth:`scan` and :meth:`load` must not be called, because only a part of the state is here.

    ``statistics``: those of all stored entries, in the order of the schema. They are kept up to date."""

    def __init__(
        self,
        schema: KeyedStateSchema,
        key_group_range: KeyGroupRange,
        stored: StoredEntries,
        statistics: Sequence[StateStatistics],
    ) -> None:
        super().__init__(HeapKeyedStateBackend(schema, key_group_range, whole=statistics))
        self._stored = stored
        self._known: dict[str, list[pa.LargeBinaryArray]] = {d.name: [] for d in schema.states}

    def read(self, state: str, keys: Ragged) -> StateValues:
        self.schema.state(state)
        check_owned_keys(state, keys, self.schema, self.key_group_range)
        unknown = keys.take(self._unknown(state, keys))
        if len(unknown):
            self.inner.load(state, self._stored.find(state, unknown))
            self._known[state].append(as_arrow(unknown))
        return self.inner.read(state, keys)

    def load(self, state: str, rows: StateRows) -> None:
        raise AssertionError(f"state {state!r}: {len(rows)} entries are loaded into a backend that reads them itself")

    def scan(self, state: str) -> StateScan:
        raise AssertionError(f"state {state!r} is scanned, of which only the asked-for entries are here")

    def keys_with(self, state: str, prefixes: Ragged, prefix_of: Callable[[Ragged], Ragged]) -> Ragged:  # noqa: ARG002
        raise AssertionError(f"all entries of {len(prefixes)} keys of state {state!r} are read")

    def timers_until(self, state: str, until_ms: int) -> Ragged:
        raise AssertionError(f"timers {state!r} until {until_ms} are read, of which only the asked-for ones are here")

    def count_entries(self, state: str, keys: Ragged, most: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        rows = self._stored.find_prefixed(state, keys)
        rows = rows.take(self._unknown(state, rows.keys))
        if len(rows):
            self.inner.load(state, rows)
            self._known[state].append(as_arrow(rows.keys))
        return self.inner.count_entries(state, keys, most)

    def bytes_read(self) -> int:
        """Return the number of stored bytes that have been read so far."""
        return self._stored.size_bytes

    def close(self) -> None:
        self._stored.close()
        self.inner.close()

    def _unknown(self, state: str, keys: Ragged) -> npt.NDArray[np.int64]:
        """Return the numbers of the keys whose entries have not been read yet."""
        were_read = pa.chunked_array(self._known[state], pa.large_binary())
        is_known = pc.is_in(as_arrow(keys), value_set=were_read)
        return np.flatnonzero(~np.asarray(is_known.to_numpy(zero_copy_only=False), np.bool_))
