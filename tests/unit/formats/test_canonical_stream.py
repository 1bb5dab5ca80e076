"""The canonical stream: exact bytes, damage, and input that does not belong."""

import struct
from dataclasses import replace

import pytest

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.formats.canonical.encoder import CanonicalStream, encode_canonical, encode_key_group
from statelib.formats.canonical.reading import decode_key_group, iter_canonical, read_header
from statelib.formats.keyed.header import KeyedHeader
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsSavepointStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import EVENT_TIMERS, KeyedStateSchema, StateDescriptor, StateKind, timers_descriptor
from statelib.model.types import LONG
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import from_list

SCHEMA = KeyedStateSchema(LONG, 128, tuple(StateDescriptor(n, StateKind.VALUE, LONG) for n in ("v", "w")))
ONE_STATE = KeyedStateSchema(LONG, 128, SCHEMA.states[:1])
ALL = KeyGroupRange(0, 127)
KEY = b"\x1d\0\0\0\0\0\0\0\x2a\0"
VALUE = b"\0\0\0\0\0\0\0\x07"
NO_ROWS = StateRows(from_list([]), from_list([]))


def rows(*entries: tuple[bytes, bytes]) -> StateRows:
    return StateRows(from_list([k for k, _ in entries]), from_list([v for _, v in entries]))


def entries(rows: StateRows) -> list[tuple[bytes, bytes]]:
    return list(zip(rows.keys.to_list(), rows.values.to_list(), strict=True))


def read(
    data: bytes, offsets: tuple[int, ...], key_groups: KeyGroupRange = ALL, wanted: KeyGroupRange | None = None
) -> list[tuple[int, list[tuple[bytes, bytes]]]]:
    handle = KeyGroupsSavepointStateHandle(key_groups, offsets, ByteStreamStateHandle("x", data))
    view = memoryview(data)
    header = read_header(lambda a, b: view[a:b], handle, 128)
    return [(i, entries(result)) for i, result in iter_canonical(lambda a, b: view[a:b], handle, header, wanted)]


def two_groups() -> tuple[bytes, list[int]]:
    """Return a stream of the range 1..3 with one entry in the key groups 1 and 3."""
    state = rows((b"\x01a\0", b"x"), (b"\x03b\0", b"y"))
    pieces, offsets = encode_canonical(ONE_STATE, KeyGroupRange(1, 3), [state], False)
    return b"".join(pieces), list(offsets)


def test_a_stream_with_one_entry_has_these_exact_bytes() -> None:
    pieces, offsets = encode_canonical(ONE_STATE, ALL, [rows((KEY, VALUE))], False)
    data = b"".join(pieces)
    assert len(data) == 393
    assert data[363:] == bytes.fromhex("0000 0000000a 9d000000000000002a00 00000008 0000000000000007 ffff")
    assert [(g, offset) for g, offset in enumerate(offsets) if offset] == [(29, 363)]
    assert read(data, offsets) == [(0, [(KEY, VALUE)])]


def test_states_of_a_key_group_follow_each_other() -> None:
    first, second = rows((b"\x01a", b""), (b"\x01b", b"2")), rows((b"\x01c", b"33"))
    data = encode_key_group([(0, first), (1, NO_ROWS), (2, second)], False)
    expected = (
        b"\0\0" + b"\0\0\0\2\x01a\0\0\0\0" + b"\0\0\0\2\x81b\0\0\0\x012" + b"\0\2" + b"\0\0\0\2\x81c\0\0\0\x0233"
    ) + b"\xff\xff"
    assert data == expected
    result, consumed = decode_key_group(expected + b"next group", False)
    assert consumed == len(expected)
    assert {i: entries(r) for i, r in result.items()} == {0: entries(first), 2: entries(second)}


def test_a_key_group_may_contain_a_state_twice() -> None:
    def entry(key: bytes, follower: int) -> bytes:
        return b"\0\0\0\2" + bytes([key[0] | 0x80]) + key[1:] + b"\0\0\0\1v" + struct.pack(">H", follower)

    data = b"\0\1" + entry(b"\x01a", 0) + entry(b"\x01b", 1) + entry(b"\x01c", 0xFFFF)
    result, _ = decode_key_group(data, False)
    assert {i: [k for k, _ in entries(r)] for i, r in result.items()} == {1: [b"\x01a", b"\x01c"], 0: [b"\x01b"]}


def test_a_stream_without_entries_is_only_a_header() -> None:
    assert encode_key_group([(0, NO_ROWS)], True) == b""
    pieces, offsets = encode_canonical(SCHEMA, KeyGroupRange(3, 5), [NO_ROWS, []], True)
    assert (len(pieces), offsets) == (1, (0, 0, 0))
    assert read(pieces[0], offsets, KeyGroupRange(3, 5)) == []


def test_only_the_requested_key_groups_are_read() -> None:
    data, offsets = two_groups()
    assert read(data, tuple(offsets), KeyGroupRange(1, 3), KeyGroupRange(2, 9)) == [(0, [(b"\x03b\0", b"y")])]
    assert read(data, tuple(offsets), KeyGroupRange(1, 3), KeyGroupRange(2, 2)) == []


@pytest.mark.parametrize("compressed", [False, True])
def test_every_truncation_of_a_key_group_is_detected(compressed: bool) -> None:
    data = encode_key_group([(0, rows((KEY, VALUE))), (1, rows((KEY, b""), (KEY + b"x", VALUE)))], compressed)
    for size in range(len(data)):
        with pytest.raises(CorruptStateError):
            decode_key_group(data[:size], compressed)


def test_every_flipped_bit_of_a_compressed_key_group_is_detected() -> None:
    data = encode_key_group([(0, rows(*((KEY + bytes([i]), VALUE) for i in range(9))))], True)
    original = entries(decode_key_group(data, True)[0][0])
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        try:
            result, _ = decode_key_group(bytes(damaged), True)
        except CorruptStateError:
            continue
        assert {i: entries(r) for i, r in result.items()} == {0: original}, position


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\xff\xff", "empty-group"),
        (b"\0\0", "truncated-group"),
        (b"\0\0\xff\xff\xff\xff\x81\0\0\0\0\xff\xff", "truncated-group"),
        (b"\0\0\0\0\0\1\x81\xff\xff\xff\xff\xff\xff", "truncated-group"),
        (b"\0\0\0\0\0\0\x80\0\0\0\xff\xff", "truncated-group"),
    ],
    ids=["no entry", "nothing behind the id", "negative key length", "negative value length", "empty key"],
)
def test_damaged_key_groups_are_refused(data: bytes, kind: str) -> None:
    with pytest.raises(CorruptStateError) as caught:
        decode_key_group(data, False)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda o: [o[2], 0, o[0]], "foreign-key-group"),
        (lambda o: [0, o[0], o[2]], "foreign-key-group"),
        (lambda o: [5, 0, o[2]], "truncated"),
        (lambda o: [-1, 0, o[2]], "bad-offsets"),
        (lambda o: [o[0], 0, 1 << 40], "bad-offsets"),
        (lambda o: [o[0], o[0], o[2]], "bad-offsets"),
        (lambda o: [o[0], 0, o[2] - 1], "truncated-group"),
        (lambda o: [o[0], 0, o[2] + 1], "trailing-bytes"),
    ],
    ids=["swapped", "shifted", "in the header", "negative", "beyond the end", "twice", "too early", "too late"],
)
def test_wrong_offsets_are_refused(change: object, kind: str) -> None:
    data, offsets = two_groups()
    assert callable(change)
    with pytest.raises(CorruptStateError) as caught:
        read(data, tuple(change(offsets)), KeyGroupRange(1, 3))
    assert caught.value.kind == kind


def test_state_ids_follow_the_order_of_the_header() -> None:
    data = encode_key_group([(1, rows((KEY, VALUE)))], False)
    handle = KeyGroupsSavepointStateHandle(KeyGroupRange(29, 29), (9,), ByteStreamStateHandle("x", bytes(9) + data))

    def states_of(*states: StateDescriptor) -> list[int]:
        header = KeyedHeader(replace(SCHEMA, states=states), False, 9)
        view = memoryview(handle.stream.data)
        return [state for state, _ in iter_canonical(lambda a, b: view[a:b], handle, header)]

    value, timers = SCHEMA.states[0], timers_descriptor(EVENT_TIMERS, "t")
    assert states_of(timers, value) == [1]
    assert states_of(value, timers) == [1]
    with pytest.raises(CorruptStateError, match="state id 1, expected less than 1"):
        states_of(value)


@pytest.mark.parametrize(
    ("batches", "kind"),
    [
        ([rows((b"\x09a", b""))], "foreign-key-group"),
        ([rows((b"\x00a", b""))], "foreign-key-group"),
        ([rows((b"\x03a", b""), (b"\x02a", b""))], "unsorted-entries"),
        ([rows((b"\x03a", b"")), rows((b"\x01a", b""))], "unsorted-entries"),
        ([rows((b"", b""))], "bad-entry"),
    ],
)
def test_entries_of_a_wrong_key_group_or_order_are_refused(batches: list[StateRows], kind: str) -> None:
    with pytest.raises(CorruptStateError, match="'v'") as caught:
        list(CanonicalStream(ONE_STATE, KeyGroupRange(1, 3), [batches], False))
    assert caught.value.kind == kind


def test_a_wrong_number_of_states_or_a_wrong_range_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="1 state, expected 2"):
        CanonicalStream(SCHEMA, ALL, [NO_ROWS], False)
    with pytest.raises(InvalidRequestError, match="0-128"):
        CanonicalStream(ONE_STATE, KeyGroupRange(0, 128), [NO_ROWS], False)
