"""Declared states in windows of event time. Each event is added to its windows, and a timer removes each window.

The watermark advances only between intervals. Whether an event is late depends on the earlier intervals, not on other
events of its own interval, so results do not depend on the order of events.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import group_rows, one_array
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.state import OperatorStateBackend
from statelib.errors import InvalidRequestError
from statelib.functions.declared import AggregateFunction
from statelib.functions.state_function import Ignored, Progress
from statelib.functions.timers import Timers, register, remove, take_due
from statelib.model.amounts import number_of
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import TIME_WINDOW
from statelib.serializers.columns.arrow import number_array, numbers
from statelib.serializers.entries.keys import encode_keys, split_keys
from statelib.serializers.registry import codec_of
from statelib.serializers.scalars.windows import MOMENT
from statelib.wire.ragged import Ragged, gather

Longs = npt.NDArray[np.int64]
_NANOS = 1_000_000


@dataclass(frozen=True)
class WindowSpec:
    """Windows [start, start + size) that start at every multiple of ``slide_ms`` since the epoch.

    Tumbling windows slide by their size. ``column`` is the event time. A window accepts events until the watermark has
    passed its last millisecond by ``lateness_ms``. Its contents are removed ``retain_ms`` later."""

    column: str
    size_ms: int
    slide_ms: int
    lateness_ms: int
    retain_ms: int

    def assign(self, times: Longs) -> tuple[Longs, Longs]:
        """Return (row, start of the window) for every window of each time, as two arrays. All times are in epoch
        milliseconds."""
        windows_per_event = -(-self.size_ms // self.slide_ms)
        last = times - times % self.slide_ms
        starts = (last[:, None] - self.slide_ms * np.arange(windows_per_event, dtype=np.int64)).reshape(-1)
        rows = np.repeat(np.arange(len(times), dtype=np.int64), windows_per_event)
        inside = starts + self.size_ms > times[rows]
        return rows[inside], starts[inside]

    def closes_ms(self, starts: Longs) -> Longs:
        """Return the watermark from which on each window accepts no more events."""
        return starts + (self.size_ms - 1 + self.lateness_ms)


@dataclass(frozen=True)
class WindowedFunction:
    """An aggregate function whose state has the window as its namespace."""

    inner: AggregateFunction
    window: WindowSpec

    @property
    def state(self) -> str:
        """The name of the state."""
        return self.inner.state

    def apply(
        self,
        backend: KeyedStateBackend,
        events: pa.Table,
        keys: pa.Array,
        groups: npt.NDArray[np.int32],
        progress: Progress,
        *,
        operator: OperatorStateBackend | None = None,  # noqa: ARG002 - aggregates are of keys only
    ) -> Ignored:
        """Merge the events into their windows, and return the numbers of those without an open window or a user key.

        Raise InvalidRequestError (``null-event-time``, and what the aggregates raise)."""
        rows, starts = self.window.assign(event_times(self.state, self.window.column, events))
        in_time = self.window.closes_ms(starts) > progress.before_ms
        rows, starts = rows[in_time], starts[in_time]
        accepted = np.unique(rows)
        ignored = Ignored(len(events) - len(accepted), self.inner.without_user_key(events, accepted))
        if not len(rows):
            return ignored
        positions = pa.array(rows)
        keys, groups, windows = keys.take(positions), groups[rows], _windows(starts, self.window.size_ms)
        needed = events.select(sorted({self.window.column, *self.inner.columns}))  # sliding windows copy events
        self.inner.merge(backend, needed.take(positions), keys, groups, windows)
        self._set_timers(backend, keys, groups, windows, starts)
        return ignored

    def advance(
        self,
        backend: KeyedStateBackend,
        progress: Progress,
        *,
        operator: OperatorStateBackend | None = None,  # noqa: ARG002
    ) -> None:
        """Remove the contents of the windows that were closed long enough ago. A timer that was set when the allowed
        lateness or ``retain`` was shorter is set again, for the time that counts now."""
        due = take_due(backend, self.state, 0, progress.event_time_ms)
        if due is None:
            return
        assert due.namespaces is not None, "the timers of windows have namespaces"
        last_ms = np.asarray(numbers(due.namespaces.field("end"), "i8"), np.int64) - 1
        due = replace(due, moments=last_ms + (self.window.lateness_ms + self.window.retain_ms))
        due = due.take(group_rows([due.keys, due.namespaces]).first)
        is_over = due.moments <= progress.event_time_ms
        register(backend, self.state, due.take(np.flatnonzero(~is_over)))
        ended = due.take(np.flatnonzero(is_over))
        remove(backend, self.state, _contents(backend, backend.schema.state(self.state), ended))

    def _set_timers(
        self,
        backend: KeyedStateBackend,
        keys: pa.Array,
        groups: npt.NDArray[np.int32],
        windows: pa.Array,
        starts: Longs,
    ) -> None:
        first = group_rows([keys, pa.array(starts)]).first
        moments = self.window.closes_ms(starts[first]) + self.window.retain_ms
        domains = np.zeros(len(first), np.int8)
        positions = pa.array(first)
        register(
            backend, self.state, Timers(domains, moments, keys.take(positions), groups[first], windows.take(positions))
        )


def event_times(state: str, name: str, events: pa.Table) -> Longs:
    """Return the column ``name`` of the events of a state with windows, in epoch milliseconds.

    Raise InvalidRequestError (``null-event-time``)."""
    column = one_array(events[name])
    if column.null_count:
        raise InvalidRequestError(
            f"state {state}: {column.null_count} of {number_of(len(events), 'event')} have no {name}, "
            "the time that says which window they belong to",
            kind="null-event-time",
            hint="leave such events out of the source",
        )
    return np.asarray(numbers(column.cast(pa.timestamp("ns", "UTC")), "i8"), np.int64) // _NANOS


def _windows(starts: Longs, size_ms: int) -> pa.Array:
    bounds = [number_array(bound, MOMENT) for bound in (starts, starts + size_ms)]
    return pa.StructArray.from_arrays(bounds, fields=list(codec_of(TIME_WINDOW).arrow_type))


def _contents(backend: KeyedStateBackend, descriptor: StateDescriptor, ended: Timers) -> Ragged:
    """Return the serialized keys of all entries that the state may have for the keys and windows of the timers."""
    value_descriptor = replace(descriptor, kind=StateKind.VALUE, user_key_type=None)
    owners = encode_keys(backend.schema, value_descriptor, ended.keys, ended.groups, namespaces=ended.namespaces)
    if descriptor.kind is not StateKind.MAP:
        return owners
    return backend.keys_with(descriptor.name, owners, partial(_without_user_keys, backend.schema, descriptor))


def _without_user_keys(schema: KeyedStateSchema, descriptor: StateDescriptor, keys: Ragged) -> Ragged:
    """Return the part of each key before its user key."""
    user_keys = split_keys(schema, descriptor, keys).user_keys
    assert user_keys is not None, "only a map has several entries per key and window"
    return gather(keys.data, keys.starts, keys.lengths - user_keys.lengths)
