"""Writing the canonical savepoint stream (its layout: ``formats.canonical.reading``).

Each state's entries are framed in one vectorised pass a window of key groups; a key group is
then joined from slices of those, so the Python work grows with key groups, not with entries.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from statelib.formats import snappy_framing
from statelib.formats.canonical.entry_framing import FOLLOWS, frame
from statelib.formats.canonical.reading import END_OF_GROUP
from statelib.formats.keyed.group_windows import WINDOW_BYTES, GroupWindows, LargeGroup, Window
from statelib.formats.keyed.header import encode_header
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.serializers.rows import StateRows

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
        self._range = key_group_range
        self._compressed = compressed
        self._header = encode_header(schema, compressed)
        self._offsets = [0] * len(key_group_range)
        self._windows = GroupWindows(schema, key_group_range, states, window_bytes)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each key group of the range begins, 0 = no entry; complete after the last piece."""
        return tuple(self._offsets)

    def __iter__(self) -> Iterator[_Piece]:
        yield self._header
        position = len(self._header)
        for window in self._windows:
            if isinstance(window, LargeGroup):
                self._offsets[window.key_group - self._range.start] = position
                for piece in self._large(window):
                    position += len(piece)
                    yield piece
                continue
            pieces: list[_Piece] = []
            for place, block in self._encode(window):
                self._offsets[place - self._range.start] = position
                position += len(block)
                pieces.append(block)
            if pieces:
                yield pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _large(self, group: LargeGroup) -> Iterator[_Piece]:
        """One key group, part by part; compressed as one stream all the same."""
        pieces = _large_pieces(group)
        yield from snappy_framing.compress_pieces(pieces) if self._compressed else pieces

    def _encode(self, window: Window) -> Iterator[tuple[int, _Piece]]:
        """(key group, its bytes) for those of the window that have entries."""
        by_state = [_state_blocks(rows, bounds) if len(rows) else {} for rows, bounds in window.states]
        for place in range(window.stop - window.start):
            pieces: list[_Piece] = []
            for state_id, blocks in enumerate(by_state):
                if place in blocks:
                    pieces += (_U16.pack(state_id), blocks[place])
            if pieces:
                yield window.start + place, _finish(pieces, self._compressed)


def _large_pieces(group: LargeGroup) -> Iterator[_Piece]:
    for state_id, parts in enumerate(group.states):
        head = _U16.pack(state_id)
        for rows, last in parts:
            framed = frame(rows)
            if last:
                framed.data[framed.offsets[-2] + 4] |= FOLLOWS
            yield b"".join((head, framed.data.data))
            head = b""
    yield _U16.pack(END_OF_GROUP)


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
