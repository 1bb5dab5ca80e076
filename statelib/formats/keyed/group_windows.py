"""The entries of several states side by side, a few key groups at a time, for the writers of streams."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.amounts import number_of
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyedStateSchema
from statelib.serializers.entries.rows import StateRows, join_rows, key_groups_of

WINDOW_BYTES = 8 * 1024 * 1024
"""The size in bytes of the keys and values in one window; an encoder needs several times as much memory."""
Bounds = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Window:
    """All entries of key groups ``start`` to ``stop`` (exclusive).

    ``states``: per state, its entries and its bounds: the row at which each key group begins, and the row at which the
    last one ends.
    """

    start: int
    stop: int
    states: tuple[tuple[StateRows, Bounds], ...]


@dataclass(frozen=True, eq=False)
class LargeGroup:
    """One key group that is larger than a window.

    ``states``: per state, its entries in parts that are not empty, each with a flag that it is the last one. The parts
    must be read in this order, once, and before the next window.
    """

    key_group: int
    states: Iterator[Iterator[tuple[StateRows, bool]]]


class GroupWindows:
    """An iterable, to be used once, over all key groups of the range in windows of about ``window_bytes``.

    ``splitting``: a key group that does not fit a window is a :class:`LargeGroup`; otherwise it is a window of its own.
    ``states``: per state of ``schema``, its entries in ascending key order, either all rows or an iterable of batches
    that are read when they are needed. Memory stays near ``window_bytes`` plus one batch per state.

    Raise InvalidRequestError (``bad-states``, ``bad-key-group-range``), and CorruptStateError (``foreign-key-group``,
    ``unsorted-entries``, ``bad-entry``) for entries that are in the wrong place.
    """

    def __init__(
        self,
        schema: KeyedStateSchema,
        key_group_range: KeyGroupRange,
        states: Sequence[StateRows | Iterable[StateRows]],
        window_bytes: int = WINDOW_BYTES,
        *,
        splitting: bool = True,
    ) -> None:
        if len(states) != len(schema.states):
            raise InvalidRequestError(
                f"{number_of(len(states), 'state')}, expected {len(schema.states)}", kind="bad-states"
            )
        if key_group_range.end >= schema.max_parallelism:
            raise InvalidRequestError(
                f"key groups {key_group_range}, expected them below {schema.max_parallelism}",
                kind="bad-key-group-range",
            )
        self._range = key_group_range
        self._window_bytes = window_bytes
        self._splitting = splitting
        self._share = max(window_bytes // max(len(states), 1), 1) if splitting else None
        width = prefix_width(schema.max_parallelism)
        self._sources = [
            _Source([rows] if isinstance(rows, StateRows) else rows, width, key_group_range, state.name)
            for state, rows in zip(schema.states, states, strict=True)
        ]

    def __iter__(self) -> Iterator[Window | LargeGroup]:
        group = self._range.start
        while group <= self._range.end:
            stop = self._stop(group)
            if stop > group:
                yield Window(group, stop, tuple(source.take(group, stop) for source in self._sources))
            else:
                yield LargeGroup(group, (source.parts(group, self._share) for source in self._sources))
                stop = group + 1
            group = stop

    def _stop(self, group: int) -> int:
        """Return the end (exclusive) of the next window: all key groups before it are complete and fit the window."""
        stop = self._range.end + 1
        for source in self._sources:
            source.fetch(group, self._share)
            stop = min(stop, source.complete_until)
        if not self._sources or stop == group:
            return stop
        sizes = np.sum([source.sizes(group, stop) for source in self._sources], axis=0)
        fitting = int(np.searchsorted(np.cumsum(sizes), self._window_bytes, side="right"))
        return min(stop, group + (fitting if self._splitting else max(fitting, 1)))


class _Source:
    """The entries of one state, read batch by batch and taken out by key group."""

    def __init__(self, batches: Iterable[StateRows], width: int, key_group_range: KeyGroupRange, name: str) -> None:
        self._batches: Iterator[StateRows] | None = iter(batches)
        self._width = width
        self._range = key_group_range
        self._name = name
        self._last = key_group_range.start
        """The key group of the newest entry that was read."""
        self._rows: list[StateRows] = []
        self._groups: list[npt.NDArray[np.int32]] = []
        self._held_bytes = 0

    @property
    def complete_until(self) -> int:
        """The first key group that may still get entries; all key groups before it are complete."""
        return self._range.end + 1 if self._batches is None else self._last

    def fetch(self, group: int, limit_bytes: int | None) -> None:
        """Read batches until key group ``group`` is complete, or until at least ``limit_bytes`` are held."""
        while self.complete_until <= group and (limit_bytes is None or self._held_bytes < limit_bytes):
            self._fetch_batch()

    def parts(self, group: int, limit_bytes: int | None) -> Iterator[tuple[StateRows, bool]]:
        """Yield the entries of a key group in parts, each with a flag that it is the last one.

        One entry is held back until it is certain whether more entries follow.
        """
        complete = False
        while not complete:
            self.fetch(group, limit_bytes)
            rows, bounds = self._joined(group, group + 1)
            complete = self.complete_until > group
            end = int(bounds[1]) if complete else int(bounds[1]) - 1
            if end > 0:
                self._drop(end)
                yield _slice(rows, 0, end), complete
            elif not complete:
                self._fetch_batch()

    def _fetch_batch(self) -> None:
        rows = next(self._batches, None) if self._batches is not None else None
        if rows is None:
            self._batches = None
        elif len(rows):
            self._append(rows)

    def sizes(self, group: int, stop: int) -> npt.NDArray[np.int64]:
        """Return the size in bytes of keys and values per key group from ``group`` to ``stop`` (exclusive)."""
        rows, bounds = self._joined(group, stop)
        return np.diff(rows.keys.offsets[bounds]) + np.diff(rows.values.offsets[bounds])

    def take(self, group: int, stop: int) -> tuple[StateRows, npt.NDArray[np.int64]]:
        """Return the entries of key groups ``group`` to ``stop`` (exclusive), and their bounds; see :class:`Window`."""
        rows, bounds = self._joined(group, stop)
        end = int(bounds[-1])
        self._drop(end)
        return _slice(rows, int(bounds[0]), end), bounds - bounds[0]

    def _drop(self, end: int) -> None:
        """Remove the first ``end`` rows. All rows must have been joined before."""
        rows = self._rows[0]
        self._held_bytes -= _size_bytes(rows, 0, end)
        self._rows, self._groups = [_slice(rows, end, len(rows))], [self._groups[0][end:]]
        if end == len(rows):
            self._rows, self._groups = [], []

    def _joined(self, group: int, stop: int) -> tuple[StateRows, npt.NDArray[np.int64]]:
        """Return all rows as one, and the row at which each key group begins."""
        if len(self._rows) != 1:
            self._rows = [join_rows(self._rows)]
            self._groups = [np.concatenate([np.empty(0, np.int32), *self._groups])]
        return self._rows[0], np.searchsorted(self._groups[0], np.arange(group, stop + 1)).astype(np.int64)

    def _append(self, rows: StateRows) -> None:
        if int(rows.keys.lengths.min()) < self._width:
            raise CorruptStateError(
                f"state {self._name!r}: a key that is shorter than its key-group prefix", kind="bad-entry"
            )
        groups = key_groups_of(rows.keys, self._width)
        if int(groups.min()) not in self._range or int(groups.max()) not in self._range:
            raise CorruptStateError(
                f"state {self._name!r}: key groups {groups.min()} to {groups.max()}, expected {self._range}",
                kind="foreign-key-group",
            )
        if groups[0] < self._last or bool((groups[1:] < groups[:-1]).any()):
            raise CorruptStateError(f"state {self._name!r}: entries are not in key order", kind="unsorted-entries")
        self._rows.append(rows)
        self._groups.append(groups)
        self._held_bytes += _size_bytes(rows, 0, len(rows))
        self._last = int(groups[-1])


def _slice(rows: StateRows, start: int, stop: int) -> StateRows:
    return StateRows(rows.keys.slice(start, stop), rows.values.slice(start, stop))


def _size_bytes(rows: StateRows, start: int, stop: int) -> int:
    return sum(int(part.offsets[stop] - part.offsets[start]) for part in (rows.keys, rows.values))
