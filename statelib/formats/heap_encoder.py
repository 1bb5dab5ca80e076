"""Writing the heap stream (its layout: ``formats.heap_stream``).

Each state's entries are made in one vectorised pass a window of key groups; a key group is then
joined from slices of those, so the Python work grows with key groups, not with entries.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from statelib.formats import snappy_framing
from statelib.formats.group_windows import WINDOW_BYTES, GroupWindows, Window
from statelib.formats.heap_entries import entries_of
from statelib.formats.keyed_header import encode_header
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.serializers.rows import StateRows

_KEY_GROUP = struct.Struct(">i")
_STATE = struct.Struct(">Hi")
_Piece = bytes | memoryview


class HeapStream:
    """Iterate over it once: the pieces of the stream, header first. :attr:`offsets` fills on the way.

    ``states``: for each state of ``schema``, its entries in ascending key order, at once or in
    batches that are fetched as needed; memory stays near ``window_bytes`` plus a batch a state.
    Raises CorruptStateError (``foreign-key-group``, ``unsorted-entries``, and what the codecs raise)
    for entries that do not belong there.
    """

    def __init__(
        self,
        schema: KeyedStateSchema,
        key_group_range: KeyGroupRange,
        states: Sequence[StateRows | Iterable[StateRows]],
        compressed: bool,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self._schema = schema
        self._compressed = compressed
        self._header = encode_header(schema, compressed)
        self._windows = GroupWindows(schema, key_group_range, states, window_bytes)
        self._offsets: list[int] = []

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each key group of the range begins, those without entries too; complete after the last piece."""
        return tuple(self._offsets)

    def __iter__(self) -> Iterator[_Piece]:
        yield self._header
        position = len(self._header)
        for window in self._windows:
            pieces: list[_Piece] = []
            for group in self._encode(window):
                self._offsets.append(position)
                position += sum(map(len, group))
                pieces += group
            yield b"".join(pieces)

    def _encode(self, window: Window) -> Iterator[list[_Piece]]:
        """Each key group of the window, in pieces."""
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


def _state_blocks(
    schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows, bounds: npt.NDArray[np.int64]
) -> list[tuple[int, memoryview]]:
    """For each key group (whose first rows are ``bounds``): how many entries it has, and the entries."""
    if not len(rows):
        return [(0, memoryview(b""))] * (len(bounds) - 1)
    entries, at = entries_of(schema, descriptor, rows, bounds)
    view = np.ascontiguousarray(entries.data).data
    cuts = entries.offsets[at].tolist()
    return [(count, view[a:b]) for count, a, b in zip(np.diff(at).tolist(), cuts[:-1], cuts[1:], strict=True)]
