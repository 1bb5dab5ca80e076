"""A keyed backend around another one, as the base of those that change some of its calls."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.keyed import KeyedStateBackend, StateScan, StateValues
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateStatistics
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import Ragged


class WrappedBackend:
    """A :class:`~statelib.backends.keyed.KeyedStateBackend` that passes all calls to ``inner``."""

    def __init__(self, inner: KeyedStateBackend) -> None:
        self.inner = inner

    @property
    def schema(self) -> KeyedStateSchema:
        return self.inner.schema

    @property
    def key_group_range(self) -> KeyGroupRange:
        return self.inner.key_group_range

    def read(self, state: str, keys: Ragged) -> StateValues:
        return self.inner.read(state, keys)

    def write(self, before: StateValues, state: str, values: pa.Array, removed: pa.BooleanArray | None = None) -> None:
        self.inner.write(before, state, values, removed)

    def load(self, state: str, rows: StateRows) -> None:
        self.inner.load(state, rows)

    def scan(self, state: str) -> StateScan:
        return self.inner.scan(state)

    def keys_with(self, state: str, prefixes: Ragged, prefix_of: Callable[[Ragged], Ragged]) -> Ragged:
        return self.inner.keys_with(state, prefixes, prefix_of)

    def timers_until(self, state: str, until_ms: int) -> Ragged:
        return self.inner.timers_until(state, until_ms)

    def count_entries(self, state: str, keys: Ragged, most: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.inner.count_entries(state, keys, most)

    def statistics(self) -> tuple[StateStatistics, ...]:
        return self.inner.statistics()

    def close(self) -> None:
        self.inner.close()
