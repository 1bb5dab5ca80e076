"""The open session windows of keys, as the state beside the contents has them: read and written on columns."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import Grouping, group_rows, list_array
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.keys.order import quick_order
from statelib.functions.sessions.spans import Longs, Mask, SessionWindows, spans_of, stacked
from statelib.functions.timers import remove
from statelib.model.session_state import window_set
from statelib.serializers.entries.keys import encode_keys
from statelib.serializers.entries.values import value_arrow_type


@dataclass(frozen=True, eq=False)
class Keys:
    """Distinct keys with their key groups."""

    values: pa.Array
    groups: npt.NDArray[np.int32]

    def take(self, rows: npt.NDArray[np.integer]) -> "Keys":
        """Return the keys in these rows. A row may be taken more than once."""
        return Keys(self.values.take(pa.array(rows)), self.groups[rows])


@dataclass(frozen=True, eq=False)
class WindowSet:
    """The open windows of some keys. ``places`` are the windows under which their contents are stored. In both, the
    owners are row numbers of the keys."""

    windows: SessionWindows
    places: SessionWindows

    def __len__(self) -> int:
        return len(self.windows)

    def take(self, rows: npt.NDArray[np.integer] | Mask) -> "WindowSet":
        """Return the windows in these rows."""
        return WindowSet(self.windows.take(rows), self.places.take(rows))

    def with_more(self, windows: SessionWindows) -> "WindowSet":
        """Return these windows and others, whose contents are stored under the windows themselves."""
        return WindowSet(stacked(self.windows, windows), stacked(self.places, windows))

    def of_owners(self, owners: Longs, size: int) -> "WindowSet":
        """Return the windows of these owners, numbered by their place among them. ``size`` is the number of keys."""
        numbers = np.full(size, -1, np.int64)
        numbers[owners] = np.arange(len(owners))
        wanted = self.take(numbers[self.windows.owners] >= 0)
        return WindowSet(*(replace(spans, owners=numbers[spans.owners]) for spans in (wanted.windows, wanted.places)))


def in_stored_order(backend: KeyedStateBackend, state: str, keys: Keys) -> tuple[Keys, Grouping]:
    """Return the distinct keys, and the groups of equal keys, which are numbered by them. If it is cheap, the keys are
    in the order of their entries: then the entries of their windows are, too, and are found without sorting."""
    grouping = group_rows([keys.values])
    distinct = keys.take(grouping.first)
    descriptor = backend.schema.state(window_set(state))
    order = quick_order(encode_keys(backend.schema, descriptor, distinct.values, distinct.groups))
    return (distinct, grouping) if order is None else (distinct.take(order), grouping.ordered(order))


def read_windows(backend: KeyedStateBackend, state: str, keys: Keys) -> WindowSet:
    """Return the open windows of the keys. ``state`` is the name of the state with their contents."""
    name = window_set(state)
    rows = encode_keys(backend.schema, backend.schema.state(name), keys.values, keys.groups)
    order = quick_order(rows)
    if order is None:
        order = np.arange(len(rows), dtype=np.int64)
    lists = backend.read(name, rows.take(order)).values
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    owners = np.repeat(order, lengths)
    windows, places = lists.flatten().flatten()
    return WindowSet(spans_of(owners, windows), spans_of(owners, places))


def write_windows(backend: KeyedStateBackend, state: str, keys: Keys, windows: WindowSet) -> None:
    """Replace the open windows of the keys. A key without windows loses its entry."""
    descriptor = backend.schema.state(window_set(state))
    if not len(keys.values):
        return
    rows = encode_keys(backend.schema, descriptor, keys.values, keys.groups)
    lengths = np.bincount(windows.windows.owners, minlength=len(keys.values))
    remove(backend, descriptor.name, rows.take(np.flatnonzero(lengths == 0)))
    present = np.flatnonzero(lengths)
    if not len(present):
        return
    ordered = windows.take(windows.windows.order())
    type_ = value_arrow_type(descriptor)
    pairs = [spans.as_namespaces() for spans in (ordered.windows, ordered.places)]
    values = list_array(pa.StructArray.from_arrays(pairs, fields=list(type_.value_type)), lengths[present])
    before = backend.read(descriptor.name, rows.take(present))
    backend.write(before, descriptor.name, values.cast(type_))
