"""Declared states in session windows. The events of an interval and the open windows of their keys are merged at once.

A window of a single event lasts from its time until a gap later. Windows that overlap or touch are one window. Whether
a window is late is decided after all of its events have been merged, so results do not depend on the order of events.
Flink has the same result if the events of the interval arrive with the newest first.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import Grouping, group_rows
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.emitted_rows import EmittedRows
from statelib.backends.operator.state import OperatorStateBackend
from statelib.functions.declared import AggregateFunction
from statelib.functions.sessions.spans import Longs, Mask, SessionWindows, merged, spans_of, stacked
from statelib.functions.sessions.window_sets import Keys, WindowSet, in_stored_order, read_windows, write_windows
from statelib.functions.state_function import Ignored, Progress
from statelib.functions.timers import Timers, register, remove, replace, take_due
from statelib.functions.windows import event_times
from statelib.model.session_state import session_timers
from statelib.serializers.entries.keys import encode_keys
from statelib.wire.ragged import Ragged


@dataclass(frozen=True)
class SessionSpec:
    """Windows that end when a key has had no event for ``gap_ms``.

    ``column`` is the event time. A window accepts events until the watermark has passed its last millisecond by
    ``lateness_ms``. Then it is closed, and its contents are removed ``retain_ms`` later."""

    column: str
    gap_ms: int
    lateness_ms: int
    retain_ms: int

    def closes_ms(self, windows: SessionWindows) -> Longs:
        """Return the watermark from which on each window accepts no more events."""
        return windows.ends + (self.lateness_ms - 1)


@dataclass(frozen=True, eq=False)
class Merge:
    """The windows of some keys after the merging of events. ``accepted``: whether events are added to a window.

    ``of_events`` and ``of_stored`` are the numbers of the windows that the events, and the ``stored`` open windows, are
    part of."""

    windows: SessionWindows
    accepted: Mask
    of_events: Longs
    stored: WindowSet
    of_stored: Longs


@dataclass(frozen=True)
class SessionFunction:
    """An aggregate function whose state has the session window as its namespace.

    The state beside it has the open windows per key. Each open window has the timers of Flink's window operator: one
    for its end, and one for the time at which it is closed. A closed window has a timer that removes its contents.
    ``outputs``: the outputs to which it emits each window that is closed."""

    inner: AggregateFunction
    window: SessionSpec
    outputs: tuple[str, ...] = ()

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
        """Merge the events into the windows of their keys, and return the number of events whose window is closed.

        Raise InvalidRequestError (``null-event-time``, and what the aggregates raise)."""
        distinct, merge = self._merge(backend, events, keys, groups, progress)
        rows = np.flatnonzero(merge.accepted[merge.of_events])
        if len(rows):
            self._join(backend, distinct, merge)
            self._replace_windows(backend, distinct, merge)
            positions, numbers = pa.array(rows), merge.of_events[rows]
            needed = events.select(sorted({self.window.column, *self.inner.columns})).take(positions)
            windows = merge.windows.take(numbers).as_namespaces()
            self.inner.merge(backend, needed, keys.take(positions), groups[rows], windows, numbers=numbers)
        return Ignored(late=len(events) - len(rows))

    def advance(
        self,
        backend: KeyedStateBackend,
        progress: Progress,
        *,
        operator: OperatorStateBackend | None = None,
    ) -> None:
        """Close the windows whose time has come, and remove the contents of those that were closed long enough ago."""
        due = take_due(backend, session_timers(self.state), 0, progress.event_time_ms)
        if due is None:
            return
        assert due.namespaces is not None, "the timers of windows have namespaces"
        grouping = group_rows([due.keys])
        keys = Keys(due.keys, due.groups).take(grouping.first)
        windows = spans_of(grouping.codes, due.namespaces)
        windows = windows.take(windows.grouped().first)
        closes = self.window.closes_ms(windows)
        closed = closes <= progress.event_time_ms
        removed = closed & (closes + self.window.retain_ms <= progress.event_time_ms)
        ended = self._close(backend, keys, windows.take(closed))
        if operator is not None and self.outputs and len(ended):
            self._emit(backend, keys, ended, operator.emitted)
        remove(backend, self.state, self._entries(backend, keys, windows.take(removed)))
        # An open window has this timer already, unless the allowed lateness has become longer.
        self._set_timers(backend, keys, windows.take(~closed), self.window.lateness_ms)
        retained = self.window.lateness_ms + self.window.retain_ms
        self._set_timers(backend, keys, windows.take(closed & ~removed), retained)

    def _merge(
        self,
        backend: KeyedStateBackend,
        events: pa.Table,
        keys: pa.Array,
        groups: npt.NDArray[np.int32],
        progress: Progress,
    ) -> tuple[Keys, Merge]:
        """Return the distinct keys of the events, and how the events and the open windows of these keys merge."""
        times = event_times(self.state, self.window.column, events)
        distinct, grouping = in_stored_order(backend, self.state, Keys(keys, groups))
        stored = read_windows(backend, self.state, distinct)
        new, of_events = merged(SessionWindows(grouping.codes, times, times + self.window.gap_ms))
        windows, codes = merged(stacked(new, stored.windows))
        accepted = np.zeros(len(windows), np.bool_)
        accepted[codes[: len(new)]] = True
        accepted &= self.window.closes_ms(windows) > progress.before_ms
        ended = np.flatnonzero(accepted & (windows.ends - 1 <= progress.before_ms))
        accepted[ended[self._retained(backend, distinct, windows.take(ended), stored)]] = False
        return distinct, Merge(windows, accepted, codes[of_events], stored, codes[len(new) :])

    def _retained(self, backend: KeyedStateBackend, keys: Keys, windows: SessionWindows, stored: WindowSet) -> Mask:
        """Return which windows have the bounds of a closed one whose contents are still there. Such a window could
        accept events only because the allowed lateness was shorter when it was closed."""
        retained = np.zeros(len(windows), np.bool_)
        if not len(windows):
            return retained
        rows = np.flatnonzero(~windows.among(stored.places))
        if len(rows):
            contents = backend.read(self.state, self._entries(backend, keys, windows.take(rows)))
            retained[rows] = contents.present.to_numpy(zero_copy_only=False)
        return retained

    def _join(self, backend: KeyedStateBackend, keys: Keys, merge: Merge) -> None:
        """Move the contents of stored windows to the windows that they have become part of."""
        rows = np.flatnonzero(merge.accepted[merge.of_stored])
        codes = merge.of_stored[rows]
        alone = np.bincount(codes, minlength=len(merge.windows))[codes] == 1
        stays = alone & merge.stored.places.take(rows).equal(merge.windows.take(codes))
        rows, codes = rows[~stays], codes[~stays]
        sources, targets = merge.stored.places.take(rows), merge.windows.take(codes)
        self._move(backend, keys, sources, targets, group_rows([pa.array(codes)]))

    def _replace_windows(self, backend: KeyedStateBackend, keys: Keys, merge: Merge) -> None:
        """Store the accepted windows in place of those that are part of them, and set their timers."""
        joining = merge.accepted[merge.of_stored]
        unchanged = joining & merge.stored.windows.equal(merge.windows.take(merge.of_stored))
        accepted = merge.windows.take(merge.accepted)
        after, owners = merge.stored.take(~joining).with_more(accepted), accepted.distinct_owners()
        write_windows(backend, self.state, keys.take(owners), after.of_owners(owners, len(keys.values)))
        new = merge.accepted.copy()
        new[merge.of_stored[unchanged]] = False
        replaced, delays_ms = merge.stored.windows.take(joining & ~unchanged), {0, self.window.lateness_ms}
        gone, added = (self._timers(keys, windows, *delays_ms) for windows in (replaced, merge.windows.take(new)))
        replace(backend, session_timers(self.state), gone, added)

    def _close(self, backend: KeyedStateBackend, keys: Keys, closed: SessionWindows) -> SessionWindows:
        """Take the closed windows out of the open windows of the keys, and return those that were open. Their contents
        remain under their own names."""
        stored = read_windows(backend, self.state, keys)
        closing = stored.windows.among(closed)
        owners = stored.windows.take(closing).distinct_owners()
        after = stored.take(~closing).of_owners(owners, len(keys.values))
        write_windows(backend, self.state, keys.take(owners), after)
        moves = closing & ~stored.places.equal(stored.windows)
        ends = stored.windows.take(moves)
        self._move(backend, keys, stored.places.take(moves), ends, ends.grouped())
        return stored.windows.take(closing)

    def _emit(self, backend: KeyedStateBackend, keys: Keys, ended: SessionWindows, emitted: EmittedRows) -> None:
        """Emit windows with their contents. The contents are null if all values that were aggregated were null."""
        contents = backend.read(self.state, self._entries(backend, keys, ended))
        columns = [keys.take(ended.owners).values, ended.as_namespaces(), contents.values]
        for output in self.outputs:
            emitted.add(output, pa.table(columns, schema=emitted.schemas[output]))

    def _move(
        self,
        backend: KeyedStateBackend,
        keys: Keys,
        sources: SessionWindows,
        targets: SessionWindows,
        grouping: Grouping,
    ) -> None:
        """Merge the contents of each source into those of the target in the same row. ``grouping``: the groups of equal
        targets of one key."""
        if not len(sources):
            return
        moved, joined = (self._entries(backend, keys, spans) for spans in (sources, targets.take(grouping.first)))
        self.inner.join(backend, moved, joined, grouping.codes)

    def _entries(self, backend: KeyedStateBackend, keys: Keys, windows: SessionWindows) -> Ragged:
        """Return the serialized keys of the contents of windows."""
        owners = keys.take(windows.owners)
        descriptor = backend.schema.state(self.state)
        return encode_keys(backend.schema, descriptor, owners.values, owners.groups, namespaces=windows.as_namespaces())

    def _set_timers(self, backend: KeyedStateBackend, keys: Keys, windows: SessionWindows, delay_ms: int) -> None:
        register(backend, session_timers(self.state), self._timers(keys, windows, delay_ms))

    def _timers(self, keys: Keys, windows: SessionWindows, *delays_ms: int) -> Timers:
        """Return a timer per window and delay, for so long after the last millisecond of the window."""
        moments = np.concatenate([windows.ends + (delay_ms - 1) for delay_ms in delays_ms])
        windows = windows.take(np.tile(np.arange(len(windows)), len(delays_ms)))
        owners, domains = keys.take(windows.owners), np.zeros(len(windows), np.int8)
        return Timers(domains, moments, owners.values, owners.groups, windows.as_namespaces())
