"""Where the entries of a broadcast state's map begin and end, if its bytes say so.

The map is stored as its count, then keys and values one behind the other, without lengths; its handle knows one offset.
So where a key or a value does not end by itself, what is known is where all of it ends. That is enough for one entry
whose key ends by itself or whose value has one length, and for several where only one way of cutting them is possible.
Source: docs/spec/formats.md#operator-state (HeapBroadcastState).
"""

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.serializers.aspects.json_values import ReadJson
from statelib.serializers.registry import codec_of
from statelib.serializers.typed_json import ends_by_itself, json_reader
from statelib.wire.reader import Reader

MOST_BYTES = 64 * 1024
"""Of a map whose entries are looked for: each of its bytes may begin one."""
MOST_PLACES = 1 << 24
"""Of all entries together."""
Span = tuple[int, int, int]
"""Where an entry begins, where its value begins, and where it ends."""


def entry_spans(descriptor: OperatorStateDescriptor, part: bytes, what: str) -> list[Span] | None:
    """In the bytes of the map, its count in front; None where nothing in them tells.

    Raises CorruptStateError (``bad-count`` and what the readers raise)."""
    assert descriptor.key_type is not None
    reader = Reader(part, what)
    count = reader.count()
    key, value = json_reader(descriptor.key_type), json_reader(descriptor.value_type)
    if ends_by_itself(descriptor.key_type):
        if ends_by_itself(descriptor.value_type):
            return [_span(reader, key, value) for _ in range(count)]
        return _one(reader, key, part) if count == 1 else _proven(part, reader.offset, count, key) if count else []
    width = codec_of(descriptor.value_type).width
    if count == 1 and 0 < width <= reader.remaining:
        return [(reader.offset, len(part) - width, len(part))]
    return None if count else []


def _span(reader: Reader, key: ReadJson, value: ReadJson) -> Span:
    begin = reader.offset
    key(reader)
    middle = reader.offset
    value(reader)
    return begin, middle, reader.offset


def _one(reader: Reader, key: ReadJson, part: bytes) -> list[Span]:
    begin = reader.offset
    key(reader)
    return [(begin, reader.offset, len(part))]


def _proven(part: bytes, first: int, count: int, key: ReadJson) -> list[Span] | None:
    """The one way in which ``count`` entries fill the bytes from ``first`` on: the true one is always among those that
    do. None if there are more."""
    places = len(part) + 1
    if places > MOST_BYTES or places * count > MOST_PLACES:
        return None
    behind = _behind(part, first, key)
    if behind is None:
        return None
    is_key = behind >= 0
    ways = np.zeros(places, np.int64)
    ways[first] = 1
    steps = [ways]
    for _ in range(count - 1):
        reached = np.zeros(places, np.int64)
        np.add.at(reached, behind[is_key], ways[is_key])
        ways = np.where(is_key, np.minimum(np.cumsum(reached), 2), 0)
        steps.append(ways)
    if int(ways[is_key].sum()) != 1:
        return None
    found: list[Span] = []
    end = len(part)
    for ways in reversed(steps):
        begin = int(np.flatnonzero(is_key & (ways > 0) & (behind <= end))[0])
        found.append((begin, int(behind[begin]), end))
        end = begin
    return found[::-1]


def _behind(part: bytes, first: int, key: ReadJson) -> npt.NDArray[np.int64] | None:
    """For each place where a key that begins there ends, -1 where none can; None where that cannot be told."""
    found = np.full(len(part) + 1, -1, np.int64)
    view = memoryview(part)
    for at in range(first, len(part) + 1):
        reader = Reader(view[at:], "key")
        try:
            key(reader)
        except CorruptStateError:
            continue
        except UnsupportedError:
            return None
        found[at] = at + reader.offset
    return found
