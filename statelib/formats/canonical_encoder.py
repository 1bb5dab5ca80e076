"""Writing the canonical savepoint stream (its layout: ``formats.canonical``).

Each state's entries are framed in one vectorised pass a window of key groups; a key group is
then joined from slices of those, so the Python work grows with key groups, not with entries.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.formats import snappy_framing
from statelib.formats.canonical import END_OF_GROUP
from statelib.formats.entry_framing import FOLLOWS, frame
from statelib.formats.keyed_header import encode_header
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyedStateSchema
from statelib.serializers.rows import StateRows, key_groups_of
from statelib.wire.ragged import concat

WINDOW_BYTES = 32 * 1024 * 1024
_Piece = bytes | memoryview
_U16 = struct.Struct(">H")


def encode_key_group(states: Sequence[tuple[int, StateRows]], compressed: bool) -> bytes:
    """One key group: ``states`` are (state id, its entries sorted by key) in ascending id order.

    b'' when there is no entry at all: such a group has offset 0 and no bytes.
    """
    pieces: list[_Piece] = []
    for state_id, rows in states:
        if len(rows):
            blocks = _state_blocks(rows, np.array([0, len(rows)]))
            pieces += (_U16.pack(state_id), blocks[0])
    return bytes(_finish(pieces, compressed)) if pieces else b""


def encode_canonical(
    schema: KeyedStateSchema,
    key_group_range: KeyGroupRange,
    states: Sequence[StateRows | Iterable[StateRows]],
    compressed: bool,
) -> tuple[list[_Piece], tuple[int, ...]]:
    """The whole stream in pieces, and the offsets of its handle; see :class:`CanonicalStream`."""
    stream = CanonicalStream(schema, key_group_range, states, compressed)
    return list(stream), stream.offsets


class CanonicalStream:
    """Iterate over it once: the pieces of the stream, header first. :attr:`offsets` fills on the way.

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
        compressed: bool,
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
        self._compressed = compressed
        self._window_bytes = window_bytes
        self._header = encode_header(schema, compressed)
        self._offsets = [0] * len(key_group_range)
        width = prefix_width(schema.max_parallelism)
        self._sources = [
            _Source([rows] if isinstance(rows, StateRows) else rows, width, key_group_range, state.name)
            for state, rows in zip(schema.states, states, strict=True)
        ]

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each key group of the range begins, 0 = no entry; complete after the last piece."""
        return tuple(self._offsets)

    def __iter__(self) -> Iterator[_Piece]:
        yield self._header
        position, group = len(self._header), self._range.start
        while group <= self._range.end:
            stop = self._window(group)
            pieces: list[_Piece] = []
            for place, block in self._encode(group, stop):
                self._offsets[place - self._range.start] = position
                position += len(block)
                pieces.append(block)
            if pieces:
                yield pieces[0] if len(pieces) == 1 else b"".join(pieces)
            group = stop

    def _window(self, group: int) -> int:
        """First key group that must wait: those before it are fetched whole and fit the window."""
        stop = self._range.end + 1
        for source in self._sources:
            source.fetch(group)
            stop = min(stop, source.complete_until)
        sizes = np.sum([source.sizes(group, stop) for source in self._sources], axis=0)
        fitting = int(np.searchsorted(np.cumsum(sizes), self._window_bytes, side="right"))
        return min(stop, group + max(fitting, 1)) if len(sizes) else stop

    def _encode(self, group: int, stop: int) -> Iterator[tuple[int, _Piece]]:
        """(key group, its bytes) for those of ``group`` to ``stop`` that have entries."""
        by_state = []
        for source in self._sources:
            rows, bounds = source.take(group, stop)
            by_state.append(_state_blocks(rows, bounds) if len(rows) else {})
        for place in range(stop - group):
            pieces: list[_Piece] = []
            for state_id, blocks in enumerate(by_state):
                if place in blocks:
                    pieces += (_U16.pack(state_id), blocks[place])
            if pieces:
                yield group + place, _finish(pieces, self._compressed)


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


def _state_blocks(rows: StateRows, bounds: npt.NDArray[np.int64]) -> dict[int, memoryview]:
    """Framed entries of each key group that has any: ``bounds`` are its first rows, its last entry is flagged."""
    framed = frame(rows)
    used = np.flatnonzero(bounds[1:] > bounds[:-1])
    framed.data[framed.offsets[bounds[used + 1] - 1] + 4] |= FOLLOWS
    view = framed.data.data
    starts, ends = framed.offsets[bounds[used]].tolist(), framed.offsets[bounds[used + 1]].tolist()
    return {place: view[a:b] for place, a, b in zip(used.tolist(), starts, ends, strict=True)}


def _finish(pieces: list[_Piece], compressed: bool) -> _Piece:
    pieces.append(_U16.pack(END_OF_GROUP))
    data = b"".join(pieces)
    return snappy_framing.compress(data) if compressed else data
