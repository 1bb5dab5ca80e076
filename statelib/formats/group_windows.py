"""Entries of several states side by side, some key groups at a time: what a writer of streams walks over."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyedStateSchema
from statelib.serializers.rows import StateRows, key_groups_of
from statelib.wire.ragged import concat

WINDOW_BYTES = 32 * 1024 * 1024
Bounds = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Window:
    """Key groups ``start`` to ``stop`` (exclusive). ``states``: for each state its entries, and the row
    where each key group begins (and the last ends)."""

    start: int
    stop: int
    states: tuple[tuple[StateRows, Bounds], ...]


class GroupWindows:
    """Iterate over it once: all key groups of the range, in windows of about ``window_bytes``.

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
    ) -> None:
        if len(states) != len(schema.states):
            raise InvalidRequestError(f"{len(states)} states, expected {len(schema.states)}", kind="bad-states")
        if key_group_range.end >= schema.max_parallelism:
            raise InvalidRequestError(
                f"key groups {key_group_range}, expected them below {schema.max_parallelism}",
                kind="bad-key-group-range",
            )
        self._range = key_group_range
        self._window_bytes = window_bytes
        width = prefix_width(schema.max_parallelism)
        self._sources = [
            _Source([rows] if isinstance(rows, StateRows) else rows, width, key_group_range, state.name)
            for state, rows in zip(schema.states, states, strict=True)
        ]

    def __iter__(self) -> Iterator[Window]:
        group = self._range.start
        while group <= self._range.end:
            stop = self._stop(group)
            yield Window(group, stop, tuple(source.take(group, stop) for source in self._sources))
            group = stop

    def _stop(self, group: int) -> int:
        """First key group that must wait: those before it are fetched whole and fit the window."""
        stop = self._range.end + 1
        for source in self._sources:
            source.fetch(group)
            stop = min(stop, source.complete_until)
        sizes = np.sum([source.sizes(group, stop) for source in self._sources], axis=0)
        fitting = int(np.searchsorted(np.cumsum(sizes), self._window_bytes, side="right"))
        return min(stop, group + max(fitting, 1)) if self._sources else stop


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

    @property
    def complete_until(self) -> int:
        """Key groups below it have been fetched completely."""
        return self._range.end + 1 if self._batches is None else self._last

    def fetch(self, group: int) -> None:
        """Until key group ``group`` is complete."""
        while self._batches is not None and self._last <= group:
            rows = next(self._batches, None)
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
        self._rows, self._groups = [_slice(rows, end, len(rows))], [self._groups[0][end:]]
        if end == len(rows):
            self._rows, self._groups = [], []
        return _slice(rows, int(bounds[0]), end), bounds - bounds[0]

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
        self._last = int(groups[-1])


def _slice(rows: StateRows, start: int, stop: int) -> StateRows:
    return StateRows(rows.keys.slice(start, stop), rows.values.slice(start, stop))
