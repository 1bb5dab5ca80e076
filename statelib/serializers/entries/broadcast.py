"""Find where the entries of the map of a broadcast state begin and end, if the bytes show it.

The map is stored as its count, then keys and values one after the other, without lengths. So if a key or a value does
not end by itself, only the end of the whole map is known. That is enough for one entry whose key ends by itself or
whose value has a fixed width, and for several entries if there is only one way to divide the bytes into them. Source:
docs/spec/formats.md#operator-state (HeapBroadcastState).
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
"""The size of the largest map in which entries are searched for: each of its bytes may begin one."""
MOST_PLACES = 1 << 24
"""The most places that are considered for all entries together."""
Span = tuple[int, int, int]
"""The offsets at which an entry begins, at which its value begins, and at which it ends."""


def entry_spans(descriptor: OperatorStateDescriptor, part: bytes, what: str) -> list[Span] | None:
    """Return the spans of the entries of a map. ``part``: its bytes, from the count on. Return None if the bytes do not
    show where its entries end.

    Raise CorruptStateError (``bad-count`` and the kinds of the readers)."""
    assert descriptor.key_type is not None
    reader = Reader(part, what)
    count = reader.count()
    key, value = json_reader(descriptor.key_type), json_reader(descriptor.value_type)
    if ends_by_itself(descriptor.key_type):
        if ends_by_itself(descriptor.value_type):
            return [_span(reader, key, value) for _ in range(count)]
        if count == 1:
            return _only_span(reader, key, part)
        return _unique_spans(part, reader.offset, count, key) if count else []
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


def _only_span(reader: Reader, key: ReadJson, part: bytes) -> list[Span]:
    begin = reader.offset
    key(reader)
    return [(begin, reader.offset, len(part))]


def _unique_spans(part: bytes, first: int, count: int, key: ReadJson) -> list[Span] | None:
    """Return the only way in which ``count`` entries fill the bytes from ``first`` on, or None if there are several.
    The true one is always among them."""
    places = len(part) + 1
    if places > MOST_BYTES or places * count > MOST_PLACES:
        return None
    key_ends = _key_ends(part, first, key)
    if key_ends is None:
        return None
    is_key = key_ends >= 0
    ways = np.zeros(places, np.int64)
    ways[first] = 1
    steps = [ways]
    for _ in range(count - 1):
        reached = np.zeros(places, np.int64)
        np.add.at(reached, key_ends[is_key], ways[is_key])
        ways = np.where(is_key, np.minimum(np.cumsum(reached), 2), 0)
        steps.append(ways)
    if int(ways[is_key].sum()) != 1:
        return None
    spans: list[Span] = []
    end = len(part)
    for ways in reversed(steps):
        begin = int(np.flatnonzero(is_key & (ways > 0) & (key_ends <= end))[0])
        spans.append((begin, int(key_ends[begin]), end))
        end = begin
    return spans[::-1]


def _key_ends(part: bytes, first: int, key: ReadJson) -> npt.NDArray[np.int64] | None:
    """Return for each place the end of a key that begins at it, or -1 if none can. Return None if a key cannot be read
    without the user's code."""
    ends = np.full(len(part) + 1, -1, np.int64)
    view = memoryview(part)
    for at in range(first, len(part) + 1):
        reader = Reader(view[at:], "key")
        try:
            key(reader)
        except CorruptStateError:
            continue
        except UnsupportedError:
            return None
        ends[at] = at + reader.offset
    return ends
