"""The entries within the key groups of a canonical or heap stream: their framing, and the values that their bytes hold.

Source: docs/spec/formats.md#composite-keys, #canonical-stream, #heap-stream.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats import snappy_framing
from statelib.formats.canonical.entry_framing import FOLLOWS
from statelib.formats.canonical.reading import END_OF_GROUP
from statelib.formats.heap.walk import KEY_GROUP
from statelib.formats.keyed.header import KeyedHeader, stored_value_type
from statelib.model.amounts import number_of
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import LONG, StateType
from statelib.serializers.aspects.json_values import ReadJson
from statelib.serializers.entries.typed_json import key_json_reader, value_json_reader
from statelib.serializers.typed_json import json_reader, opaque_part
from statelib.wire.json_text import json_text
from statelib.wire.reader import Reader
from statelib.wire.recording import RecordingReader, Value


class AnnotatedEntryReader:
    """A parser of the entries of a canonical or heap stream.

    ``left``: the number of entries that are still to be split into fields, over all key groups; further entries are
    read as one field.
    """

    def __init__(self, header: KeyedHeader, canonical: bool, limit: int) -> None:
        self.header, self.canonical, self.left = header, canonical, limit

    def group(self, reader: RecordingReader, end: int) -> None:
        """Read an uncompressed key group, which reaches to ``end``. Raise CorruptStateError if it is damaged."""
        if self.canonical:
            self._canonical(reader)
        else:
            reader.i32("key group")
            self._heap(reader, end)
        self._rest(reader, end)

    def decompressed(self, data: memoryview, what: str) -> bytes:
        """Return the content of a compressed key group, for a heap stream without the number of the key group.

        Raise CorruptStateError.
        """
        if self.canonical:
            return snappy_framing.decompress(data, what)[0].tobytes()
        return snappy_framing.decompress_blocks(data, KEY_GROUP.size, what)[0].tobytes()

    def content(self, reader: RecordingReader) -> None:
        """Read the content that :meth:`decompressed` returned."""
        end = reader.remaining
        self._canonical(reader) if self.canonical else self._heap(reader, end)
        self._rest(reader, end)

    def _canonical(self, reader: RecordingReader) -> None:
        """Read states: an id, then entries. A flag in the first byte of a key means that a state id follows."""
        state_id = reader.u16("state id")
        while state_id != END_OF_GROUP and self.left:
            self.left -= 1
            state = self._state(state_id, reader)
            with reader.part(f"state {state.name!r}"):
                size = reader.count(name="key length")
                flagged = size and reader.peek() & FOLLOWS
                _typed(reader, "key", size, partial(self._key, state))
                size = reader.count(name="value length")
                _typed(reader, "value", size, partial(_members, state))
            if flagged:
                state_id = reader.u16("next state id")

    def _key(self, state: StateDescriptor, raw: memoryview) -> object:
        unflagged = bytes([raw[0] & ~FOLLOWS]) + raw[1:] if len(raw) else b""
        return key_json_reader(self.header.schema, state)(Reader(unflagged, "key"))

    def _heap(self, reader: RecordingReader, end: int) -> None:
        """Read states: an id, the number of entries, and the entries, which have no lengths."""
        while self.left and reader.offset < end:
            state = self._state(reader.u16("state id"), reader)
            with reader.part(f"state {state.name!r}"):
                count = reader.i32("entries")
                parts = self._heap_parts(state)
                if count and any(opaque_part(type_) for _, type_ in parts):
                    return
                for _ in range(min(count, self.left)):
                    for name, type_ in parts:
                        reader.typed(name, partial(_text, json_reader(type_)))
                if count > self.left:
                    self.left = 0
                    return
                self.left -= count

    def _heap_parts(self, state: StateDescriptor) -> tuple[tuple[str, StateType], ...]:
        key, namespace = ("key", self.header.schema.key_type), ("namespace", state.namespace_type)
        if state.kind is StateKind.TIMERS:
            return (("timestamp, sign flipped", LONG), key, namespace)
        return (namespace, key, ("value", stored_value_type(state)))

    def _state(self, state_id: int, reader: Reader) -> StateDescriptor:
        if state_id >= len(self.header.schema.states):
            raise CorruptStateError(
                f"{reader.what} before offset {reader.offset}: state id {state_id} of "
                f"{number_of(len(self.header.schema.states), 'state')}",
                kind="unknown-state-id",
            )
        return self.header.schema.states[state_id]

    def _rest(self, reader: Reader, end: int) -> None:
        if reader.offset < end:
            reader.take(end - reader.offset, "what follows" if self.left else "further entries")


def _typed(reader: RecordingReader, name: str, size: int, read: Callable[[memoryview], Any]) -> None:
    """Read a field of ``size`` bytes, whose value is what ``read`` makes of them.

    The value is the bytes themselves if only a user's own class can read them.
    """

    def value(part: Reader) -> Value:
        raw = part.take(size)
        try:
            return json_text(read(raw))
        except UnsupportedError:
            return raw

    reader.typed(name, value)


def _members(state: StateDescriptor, raw: memoryview) -> object:
    return list(value_json_reader(state)(Reader(raw, "value")))


def _text(read: ReadJson, reader: Reader) -> str:
    return json_text(read(reader))
