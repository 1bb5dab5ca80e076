"""The encoder of the canonical savepoint stream; ``formats.canonical.reading`` describes the layout.

The entries of each state are framed in one vectorised pass per window of key groups; a key group is then joined from
slices of them, so that the Python work grows with the key groups, not with the entries.
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
from statelib.serializers.entries.rows import StateRows

_Piece = bytes | memoryview
_U16 = struct.Struct(">H")


def encode_key_group(states: Sequence[tuple[int, StateRows]], compressed: bool) -> bytes:
    """Return the bytes of one key group; b'' if it has no entries.

    ``states``: (state id, entries of the key group sorted by key), in ascending order of the id. An empty key group has
    offset 0 in its handle.
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
    """Return the whole stream in pieces, and the offsets for its handle. Raise the errors of
    :class:`CanonicalStream`."""
    stream = CanonicalStream(schema, key_group_range, states, compressed)
    return list(stream), stream.offsets


class CanonicalStream:
    """An iterable, to be used once, over the pieces of the stream, header first. :attr:`offsets` fills during the
    iteration.

    ``states``: per state of ``schema``, its entries in ascending key order, either all rows or an iterable of batches
    that are read when they are needed. Memory stays near ``window_bytes`` plus one batch per state. Raise
    CorruptStateError (``foreign-key-group``, ``unsorted-entries``) for entries that are in the wrong place.
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
        """The offset of each key group of the range, 0 if it has no entries; complete after the last piece."""
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
            for key_group, block in self._encode(window):
                self._offsets[key_group - self._range.start] = position
                position += len(block)
                pieces.append(block)
            if pieces:
                yield pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _large(self, group: LargeGroup) -> Iterator[_Piece]:
        """Yield the bytes of one large key group, part by part. If compressed, they are one framed stream, as for any
        key group."""
        pieces = _large_pieces(group)
        yield from snappy_framing.compress_pieces(pieces) if self._compressed else pieces

    def _encode(self, window: Window) -> Iterator[tuple[int, _Piece]]:
        """Yield (key group, its bytes) for each key group of the window that has entries."""
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
    """Return the framed entries of each key group that has any; the last entry of each is flagged.

    ``bounds``: the row at which each key group begins, and the row at which the last one ends.
    """
    framed = frame(rows)
    used = np.flatnonzero(bounds[1:] > bounds[:-1])
    framed.data[framed.offsets[bounds[used + 1] - 1] + 4] |= FOLLOWS
    view = framed.data.data
    starts, ends = framed.offsets[bounds[used]].tolist(), framed.offsets[bounds[used + 1]].tolist()
    return {place: view[a:b] for place, a, b in zip(used.tolist(), starts, ends, strict=True)}


def _finish(pieces: list[_Piece], compressed: bool) -> _Piece:
    """Append the mark that ends a key group, and return its bytes."""
    pieces.append(_U16.pack(END_OF_GROUP))
    data = b"".join(pieces)
    return snappy_framing.compress(data) if compressed else data
