"""The port of a keyed state backend: live state of one subtask's key-group range."""

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateStatistics
from statelib.serializers.rows import StateRows
from statelib.wire.ragged import Ragged


@dataclass(frozen=True, eq=False)
class StateValues:
    """What a state holds for some serialized keys, row for row.

    ``present``: boolean array without nulls; ``values``: array of the state's Arrow type, null
    where not present (a map value may also be null where present). ``cookie`` belongs to the
    backend: what it needs to replace these entries without reading them again."""

    keys: Ragged
    present: pa.BooleanArray
    values: pa.Array
    cookie: object = None


class StateScan(Protocol):
    """A frozen view of one state, handed out batch by batch; made on one thread, it may be read on another."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> StateRows: ...
    def close(self) -> None:
        """Let go of the view; a second call, or one after the last batch, does nothing."""
        ...


class KeyedStateBackend(Protocol):
    """Keys are serialized composite keys (see StateRows), unique within one call, in any order."""

    @property
    def schema(self) -> KeyedStateSchema: ...
    @property
    def key_group_range(self) -> KeyGroupRange: ...

    def read(self, state: str, keys: Ragged) -> StateValues: ...

    def write(self, before: StateValues, state: str, values: pa.Array, removed: pa.BooleanArray | None = None) -> None:
        """Replace the entries of ``before.keys``: ``values`` row for row (type of the state),
        ``removed`` marks rows to be deleted instead. ``before`` must come from :meth:`read` on
        this backend and nothing may have written those keys in between."""
        ...

    def load(self, state: str, rows: StateRows) -> None:
        """Add serialized entries that are not there yet (restore). Raises CorruptStateError
        (kind ``foreign-key-group``) for a key outside the range."""
        ...

    def scan(self, state: str) -> StateScan:
        """All entries of this moment in ascending key order, in batches; a later write does not
        show, also if nothing was taken from the scan before it."""
        ...

    def count_entries(self, state: str, keys: Ragged, most: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How many entries of a state that is not one of timers each key has, over all namespaces and user keys.

        ``keys``: what :func:`~statelib.serializers.keys.prefixed_keys` gives, each once. Of a key that has more than
        ``most`` the answer may be any number between ``most`` and what it has."""
        ...

    def statistics(self) -> tuple[StateStatistics, ...]:
        """Of every state, in the schema's order."""
        ...

    def close(self) -> None:
        """Free everything, the working directory included; a second call does nothing."""
        ...
