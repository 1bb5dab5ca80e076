"""The port of a keyed state backend, which holds the live state of one subtask's key-group range."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateStatistics
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import Ragged


@dataclass(frozen=True, eq=False)
class StateValues:
    """The result of reading some serialized keys of a state. All fields have one row per key.

    ``present``: boolean array without nulls; whether the key has an entry. ``values``: array of the state's Arrow
    type, null where the key has no entry (the value of an entry of a map may also be null). ``cookie`` is private to
    the backend, which uses it to replace these entries without reading them again."""

    keys: Ragged
    present: pa.BooleanArray
    values: pa.Array
    cookie: object = None


class StateScan(Protocol):
    """An iterator over a frozen view of one state, batch by batch. A thread other than its creator may read it."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> StateRows: ...
    def close(self) -> None:
        """Release the view. A second call, or a call after the last batch, does nothing."""
        ...


class KeyedStateBackend(Protocol):
    """The live keyed state of one subtask. Keys are serialized composite keys (see
    :class:`~statelib.serializers.entries.rows.StateRows`), distinct within one call, in any order."""

    @property
    def schema(self) -> KeyedStateSchema: ...
    @property
    def key_group_range(self) -> KeyGroupRange: ...

    def read(self, state: str, keys: Ragged) -> StateValues:
        """Return the entries of ``keys``. The result refers to ``keys``, which must stay as they are until it has been
        used, by :meth:`write` if it is written. Raises InvalidRequestError (``foreign-key-group``, ``unknown-state``,
        ``backend-closed``)."""
        ...

    def write(self, before: StateValues, state: str, values: pa.Array, removed: pa.BooleanArray | None = None) -> None:
        """Replace the entries of ``before.keys`` by ``values``, one per key, of the state's Arrow type. The entries
        of rows that are true in ``removed`` are deleted instead. ``before`` must be the result of :meth:`read` of
        this backend, and those keys must not have been written since.

        All columns, and ``before.keys``, belong to the caller: after the call, the backend refers to none of their
        memory. What it needs later it copies: the given rows, and not the whole of which they are a slice. Raises
        InvalidRequestError (``bad-write``, ``wrong-value-type``, ``null-value``)."""
        ...

    def load(self, state: str, rows: StateRows) -> None:
        """Add serialized entries that the state does not have yet; a restore does this. ``rows`` belong to the backend
        from then on, and nobody changes their memory. Raises CorruptStateError (``foreign-key-group``) for a key
        outside the range."""
        ...

    def scan(self, state: str) -> StateScan:
        """Return all entries of this moment in ascending key order, in batches. Later writes do not change the result,
        even if no batch has been read before them."""
        ...

    def keys_with(self, state: str, prefixes: Ragged, prefix_of: Callable[[Ragged], Ragged]) -> Ragged:
        """Return the serialized keys of all entries that begin with one of ``prefixes``, in any order.

        ``prefixes``: distinct, and none is the beginning of another one. ``prefix_of``: a function that returns the
        prefix of each key. The state must not be a state of timers."""
        ...

    def timers_until(self, state: str, until_ms: int) -> Ragged:
        """Return the serialized keys of the timers of a state up to and including ``until_ms`` (epoch milliseconds), in
        ascending order: by key group, then by time."""
        ...

    def count_entries(self, state: str, keys: Ragged, most: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of entries per key, over all namespaces and user keys, as int64. The state must not be a
        state of timers.

        ``keys``: distinct, key group and key as from :func:`~statelib.serializers.entries.keys.prefixed_keys`.
        ``most``: one limit per key, at which counting may stop: for a key with more entries than its limit, the
        result is any number from the limit to the true number."""
        ...

    def statistics(self) -> tuple[StateStatistics, ...]:
        """Return the statistics of every state, in the schema's order."""
        ...

    def close(self) -> None:
        """Free memory, files and the working directory. A second call does nothing."""
        ...
