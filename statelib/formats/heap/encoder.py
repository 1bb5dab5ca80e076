"""The encoder of the heap stream; ``formats.heap.reading`` describes the layout.

The entries of each state are encoded in one vectorised pass per window of key groups; a key group is then joined from
slices of them, so that the Python work grows with the key groups, not with the entries. The number of a state's entries
is written before them, so the entries of a key group that does not fit a window are counted first.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from statelib.formats import snappy_framing
from statelib.formats.heap.entries import count_entries, entries_of, last_entry
from statelib.formats.keyed.group_windows import WINDOW_BYTES, GroupWindows, LargeGroup, Window
from statelib.formats.keyed.header import encode_header
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.serializers.entries.rows import NO_ROWS, StateRows, join_rows

_KEY_GROUP = struct.Struct(">i")
_STATE = struct.Struct(">Hi")
_Piece = bytes | memoryview


class HeapStream:
    """An iterable, to be used once, over the pieces of the stream, header first. :attr:`offsets` fills during the
    iteration.

    ``states``: per state of ``schema``, its entries in ascending key order, either all rows or an iterable of batches
    that are read when they are needed. ``again``: all entries once more, read only if a key group does not fit a
    window. Memory stays near ``window_bytes`` plus one batch per state. Without ``again``, a large key group is held
    whole; with it, at most the map of one key.

    Raise CorruptStateError (``foreign-key-group``, ``unsorted-entries``, and the kinds of the codecs) for entries that
    are in the wrong place.
    """

    def __init__(
        self,
        schema: KeyedStateSchema,
        key_group_range: KeyGroupRange,
        states: Sequence[StateRows | Iterable[StateRows]],
        compressed: bool,
        window_bytes: int = WINDOW_BYTES,
        *,
        again: Sequence[Iterable[StateRows]] | None = None,
    ) -> None:
        self._schema = schema
        self._range = key_group_range
        self._again = again
        self._counts: dict[int, list[int]] = {}
        self._compressed = compressed
        self._header = encode_header(schema, compressed)
        self._windows = GroupWindows(schema, key_group_range, states, window_bytes, splitting=again is not None)
        self._offsets: list[int] = []

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offset of each key group of the range, also of those without entries; complete after the last piece."""
        return tuple(self._offsets)

    def __iter__(self) -> Iterator[_Piece]:
        yield self._header
        position = len(self._header)
        for window in self._windows:
            if isinstance(window, LargeGroup):
                self._offsets.append(position)
                for piece in self._large(window):
                    position += len(piece)
                    yield piece
                continue
            pieces: list[_Piece] = []
            for group in self._encode(window):
                self._offsets.append(position)
                position += sum(map(len, group))
                pieces += group
            yield b"".join(pieces)

    def _large(self, group: LargeGroup) -> Iterator[_Piece]:
        """Yield the bytes of one large key group, part by part."""
        yield _KEY_GROUP.pack(group.key_group)
        for state_id, parts in enumerate(group.states):
            pieces = self._large_state(group.key_group, state_id, parts)
            yield from snappy_framing.compress_pieces(pieces) if self._compressed else pieces

    def _large_state(self, key_group: int, state_id: int, parts: Iterable[tuple[StateRows, bool]]) -> Iterator[_Piece]:
        descriptor = self._schema.states[state_id]
        yield _STATE.pack(state_id, self._count(state_id, key_group))
        for rows in _with_whole_maps(self._schema, descriptor, parts):
            entries, _ = entries_of(self._schema, descriptor, rows, np.array([0, len(rows)]))
            yield np.ascontiguousarray(entries.data).data

    def _count(self, state_id: int, key_group: int) -> int:
        """Return the number of entries of a state in a large key group."""
        if state_id not in self._counts:
            assert self._again is not None, "a key group is split only if its entries can be counted first"
            counts = count_entries(self._schema, self._schema.states[state_id], self._again[state_id], self._range)
            self._counts[state_id] = counts.tolist()
        return self._counts[state_id][key_group - self._range.start]

    def _encode(self, window: Window) -> Iterator[list[_Piece]]:
        """Yield the pieces of each key group of the window."""
        by_state = [
            _state_blocks(self._schema, descriptor, rows, bounds)
            for descriptor, (rows, bounds) in zip(self._schema.states, window.states, strict=True)
        ]
        for place in range(window.stop - window.start):
            pieces: list[_Piece] = [_KEY_GROUP.pack(window.start + place)]
            for state_id, blocks in enumerate(by_state):
                count, block = blocks[place]
                head = _STATE.pack(state_id, count)
                pieces += [snappy_framing.compress(head + bytes(block))] if self._compressed else [head, block]
            yield pieces


def _with_whole_maps(
    schema: KeyedStateSchema, descriptor: StateDescriptor, parts: Iterable[tuple[StateRows, bool]]
) -> Iterator[StateRows]:
    """Yield the parts, cut where an entry of the stream begins: the rows of one map stay together."""
    held = NO_ROWS
    for part, last in parts:
        rows = join_rows([held, part]) if len(held) else part
        cut = len(rows) if last else last_entry(schema, descriptor, rows)
        if cut:
            yield StateRows(rows.keys.slice(0, cut), rows.values.slice(0, cut))
        held = StateRows(rows.keys.slice(cut, len(rows)), rows.values.slice(cut, len(rows)))


def _state_blocks(
    schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows, bounds: npt.NDArray[np.int64]
) -> list[tuple[int, memoryview]]:
    """Return the number of entries, and the entries, per key group; ``bounds``: the first row of each key group."""
    if not len(rows):
        return [(0, memoryview(b""))] * (len(bounds) - 1)
    entries, at = entries_of(schema, descriptor, rows, bounds)
    view = np.ascontiguousarray(entries.data).data
    cuts = entries.offsets[at].tolist()
    return [(count, view[a:b]) for count, a, b in zip(np.diff(at).tolist(), cuts[:-1], cuts[1:], strict=True)]
