"""Entries of several states side by side, some key groups at a time: what a writer of streams walks over."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.amounts import number_of
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyedStateSchema
from statelib.serializers.rows import StateRows, key_groups_of
from statelib.wire.ragged import concat

WINDOW_BYTES = 8 * 1024 * 1024
"""Of keys and values; what an encoder makes of them on the way is several times as much."""
Bounds = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Window:
    """Key groups ``start`` to ``stop`` (exclusive). ``states``: for each state its entries, and the row
    where each key group begins (and the last ends)."""

    start: int
    stop: int
    states: tuple[tuple[StateRows, Bounds], ...]


@dataclass(frozen=True, eq=False)
class LargeGroup:
    """One key group that is larger than a window. ``states``: for each state its entries in parts, none of them
    empty, with whether it is the last; to be read in this order, once, and before the next window."""

    key_group: int
    states: Iterator[Iterator[tuple[StateRows, bool]]]


class GroupWindows:
    """Iterate over it once: all key groups of the range, in windows of about ``window_bytes``; where
    ``splitting``, a key group that does not fit one comes in parts.

    ``states``: for each state of ``schema``, its entries in ascending key order, at once or in
    batches that are fetched as needed; memory stays near ``window_bytes`` plus a batch a state.
    Raises CorruptStateError (``foreign-key-group``, ``unsorted-entries``) for entries that do not
    belong there.
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
        """First key group that must wait: those before it are fetched whole and fit the window."""
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
    """The entries of one state, fetched batch by batch and handed out by key group."""

    def __init__(self, batches: Iterable[StateRows], width: int, key_group_range: KeyGroupRange, name: str) -> None:
        self._batches: Iterator[StateRows] | None = iter(batches)
        self._width = width
        self._range = key_group_range
        self._name = name
        self._last = key_group_range.start
        """Key group of the newest entry fetched."""
        self._rows: list[StateRows] = []
        self._groups: list[npt.NDArray[np.int32]] = []
        self._held_bytes = 0

    @property
    def complete_until(self) -> int:
        """Key groups below it have been fetched completely."""
        return self._range.end + 1 if self._batches is None else self._last

    def fetch(self, group: int, limit_bytes: int | None) -> None:
        """Until key group ``group`` is complete, or so many bytes are held."""
        while self.complete_until <= group and (limit_bytes is None or self._held_bytes < limit_bytes):
            self._fetch_batch()

    def parts(self, group: int, limit_bytes: int | None) -> Iterator[tuple[StateRows, bool]]:
        """The entries of a key group in parts, with whether it is the last: one entry is held back until that is
        sure."""
        whole = False
        while not whole:
            self.fetch(group, limit_bytes)
            rows, bounds = self._joined(group, group + 1)
            whole = self.complete_until > group
            end = int(bounds[1]) if whole else int(bounds[1]) - 1
            if end > 0:
                self._drop(end)
                yield _slice(rows, 0, end), whole
            elif not whole:
                self._fetch_batch()

    def _fetch_batch(self) -> None:
        rows = next(self._batches, None) if self._batches is not None else None
        if rows is None:
            self._batches = None
        elif len(rows):
            self._append(rows)

    def sizes(self, group: int, stop: int) -> npt.NDArray[np.int64]:
        """Bytes of keys and values of each key group from ``group`` to ``stop`` (exclusive)."""
        rows, bounds = self._joined(group, stop)
        return np.diff(rows.keys.offsets[bounds]) + np.diff(rows.values.offsets[bounds])

    def take(self, group: int, stop: int) -> tuple[StateRows, npt.NDArray[np.int64]]:
        """The entries of those key groups, and the row where each one begins (and the last ends)."""
        rows, bounds = self._joined(group, stop)
        end = int(bounds[-1])
        self._drop(end)
        return _slice(rows, int(bounds[0]), end), bounds - bounds[0]

    def _drop(self, end: int) -> None:
        """Forget the first rows held, which are joined."""
        rows = self._rows[0]
        self._held_bytes -= _size_bytes(rows, 0, end)
        self._rows, self._groups = [_slice(rows, end, len(rows))], [self._groups[0][end:]]
        if end == len(rows):
            self._rows, self._groups = [], []

    def _joined(self, group: int, stop: int) -> tuple[StateRows, npt.NDArray[np.int64]]:
        if len(self._rows) != 1:
            keys, values = concat([r.keys for r in self._rows]), concat([r.values for r in self._rows])
            self._rows = [StateRows(keys, values)]
            self._groups = [np.concatenate([np.empty(0, np.int32), *self._groups])]
        return self._rows[0], np.searchsorted(self._groups[0], np.arange(group, stop + 1)).astype(np.int64)

    def _append(self, rows: StateRows) -> None:
        if int(rows.keys.lengths.min()) < self._width:
            raise CorruptStateError(f"state {self._name!r}: a key without key-group prefix", kind="bad-entry")
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
