"""Timers in raw keyed state, put together byte by byte, become the entries that they are elsewhere."""

import struct

import pytest

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.keyed.raw_timers import is_empty, read_raw_timers
from statelib.formats.text.typed_json import entry_lines
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.model.types import STRING, TIME_WINDOW
from statelib.serializers.snapshots import encode_serializer_snapshot

HEAD = bytes.fromhex("f1cd859f 00000002")
WINDOW = struct.pack(">qq", 5, 10)


def group(*services: bytes) -> bytes:
    return HEAD + struct.pack(">i", len(services)) + b"".join(services)


def service(name: bytes, namespace: bytes, events: list[bytes], processing: list[bytes]) -> bytes:
    lists = b"".join(struct.pack(">i", len(each)) + b"".join(each) for each in (events, processing))
    return struct.pack(">H", len(name)) + name + encode_serializer_snapshot(STRING) + namespace + lists


def stream() -> tuple[bytes, KeyGroupsStateHandle]:
    window = encode_serializer_snapshot(TIME_WINDOW)
    first = group(service(b"w", window, [b"\x02a" + WINDOW + struct.pack(">q", -3)], []))
    last = group(
        service(b"w", window, [], [b"\x02b" + WINDOW + struct.pack(">q", 7), b"\x02c" + WINDOW + struct.pack(">q", 8)])
    )
    data = first + last
    handle = KeyGroupsStateHandle(KeyGroupRange(300, 302), (0, -1, len(first)), ByteStreamStateHandle("x", data))
    return data, handle


def test_raw_timers_become_entries_of_timer_states() -> None:
    data, handle = stream()
    events, processing = read_raw_timers(data, handle, 1000, "raw")
    assert (events.descriptor.name, processing.descriptor.name) == ("_timer_state/event_w", "_timer_state/processing_w")
    schema = KeyedStateSchema(STRING, 1000, (events.descriptor, processing.descriptor))
    (line,) = entry_lines("op", schema, events.descriptor, events.rows)
    assert line == (
        '{"op":"op","state":"w","kind":"eventTimer","key":{"type":"string","v":"a"},"kg":300,'
        '"ns":{"type":"timewindow","start":5,"end":10},"ts":-3}'
    )
    exported = list(entry_lines("op", schema, processing.descriptor, processing.rows))
    assert [('"kg":302' in line, line[-7:]) for line in exported] == [(True, '"ts":7}'), (True, '"ts":8}')]


def test_other_raw_keyed_state_is_refused() -> None:
    data, handle = stream()
    for damaged in (b"\0" + data[1:], data[:7] + b"\3" + data[8:]):
        with pytest.raises(UnsupportedError) as caught:
            read_raw_timers(damaged, handle, 1000, "raw")
        assert caught.value.kind == "raw-keyed-state"
    for size in range(len(data)):
        with pytest.raises(CorruptStateError):
            read_raw_timers(data[:size], handle, 1000, "raw")
    assert not is_empty(handle)
    assert is_empty(KeyGroupsStateHandle(KeyGroupRange(0, 1), (-1, -1), handle.stream))
