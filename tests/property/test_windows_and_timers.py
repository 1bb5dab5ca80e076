"""Keys of windowed state and of timers against their bytes put together by hand; snapshots of every shape."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.backends.keys.order import byte_order
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.formats.heap.entries import HeapEntries, entries_of, rows_of
from statelib.formats.keyed.header import decode_header, encode_header
from statelib.model.state import (
    EVENT_TIMERS,
    PROCESSING_TIMERS,
    KeyedStateSchema,
    StateDescriptor,
    StateKind,
    timers_descriptor,
)
from statelib.model.types import GLOBAL_WINDOW, LONG, STRING, TIME_WINDOW, VOID, MapOf, StateType, Tuple
from statelib.serializers.entries.keys import decode_keys, encode_keys
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import decode_values, encode_values
from statelib.serializers.registry import codec_of
from statelib.serializers.scalars.windows import MOMENT
from statelib.serializers.type_text import parse_type
from statelib.wire.ragged import concat, from_list

SETTINGS = settings(deadline=None)
MOMENTS = st.integers(-(2**63), 2**63 - 1)
WINDOWS = st.tuples(MOMENTS, MOMENTS)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=300)


def windows_column(windows: list[tuple[int, int]]) -> pa.Array:
    starts, ends = ([w[i] for w in windows] for i in (0, 1))
    columns = [pa.array(bounds, pa.int64()).cast(MOMENT) for bounds in (starts, ends)]
    return pa.StructArray.from_arrays(columns, fields=list(codec_of(TIME_WINDOW).arrow_type))


def moments_column(moments: list[int]) -> pa.Array:
    return pa.array(moments, pa.int64()).cast(MOMENT)


def namespace(type_: StateType, windows: list[tuple[int, int]]) -> tuple[pa.Array | None, list[bytes]]:
    """Draw a column of namespaces, None for void, and the bytes of each."""
    if type_ == TIME_WINDOW:
        return windows_column(windows), [struct.pack(">qq", *w) for w in windows]
    return (None if type_ == VOID else pa.nulls(len(windows))), [b"\0"] * len(windows)


ROWS = st.lists(st.tuples(st.integers(0, 127), MOMENTS, TEXTS, WINDOWS), max_size=20)


@SETTINGS
@given(ROWS, st.sampled_from([VOID, TIME_WINDOW, GLOBAL_WINDOW]), st.sampled_from([128, 4096]))
def test_timers_are_encoded_and_decoded(
    rows: list[tuple[int, int, str, tuple[int, int]]], space: StateType, max_parallelism: int
) -> None:
    descriptor = timers_descriptor(EVENT_TIMERS, "w", space)
    schema = KeyedStateSchema(STRING, max_parallelism, (descriptor,))
    groups = np.array([row[0] for row in rows], np.int32)
    keys, moments = pa.array([row[2] for row in rows], pa.string()), moments_column([row[1] for row in rows])
    spaces, space_bytes = namespace(space, [row[3] for row in rows])
    encoded = encode_keys(schema, descriptor, keys, groups, namespaces=spaces, timestamps=moments)
    texts = codec_of(STRING).encode(keys).to_list()
    width = "B" if max_parallelism == 128 else "H"
    parts = zip(rows, texts, space_bytes, strict=True)
    expected = [struct.pack(f">{width}Q", row[0], row[1] + 2**63) + text + tail for row, text, tail in parts]
    assert encoded.to_list() == expected
    decoded = decode_keys(schema, descriptor, encoded)
    assert decoded.key_groups.tolist() == groups.tolist()
    assert decoded.keys.equals(keys)
    assert decoded.timestamps is not None
    assert decoded.timestamps.equals(moments)
    assert (decoded.namespaces is None) == (spaces is None)
    assert spaces is None or decoded.namespaces.equals(spaces)
    order = byte_order(encoded)
    assert [(rows[i][0], rows[i][1]) for i in order] == sorted((row[0], row[1]) for row in rows)
    values = encode_values(descriptor, pa.nulls(len(rows)))
    assert values.to_list() == [b""] * len(rows)
    assert decode_values(descriptor, values).equals(pa.nulls(len(rows)))
    in_heap(schema, descriptor, StateRows(encoded, values).take(order))


def in_heap(schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows) -> None:
    """Convert the rows to entries of a heap stream and back; they must not change."""
    width = 1 if schema.max_parallelism == 128 else 2
    entries, _ = entries_of(schema, descriptor, rows, np.array([0, len(rows)]))
    assert entries.to_list() == [key[width:] for key in rows.keys.to_list()]
    groups = decode_keys(schema, descriptor, rows.keys).key_groups
    heap = HeapEntries(entries.data, groups, entries.starts, entries.offsets[1:])
    assert rows_of(schema, descriptor, heap, "test").keys.to_list() == rows.keys.to_list()


@SETTINGS
@given(ROWS, st.sampled_from([TIME_WINDOW, GLOBAL_WINDOW]), st.booleans())
def test_keys_of_windowed_state_contain_no_lengths(
    rows: list[tuple[int, int, str, tuple[int, int]]], space: StateType, in_map: bool
) -> None:
    kind, user_type = (StateKind.MAP, LONG) if in_map else (StateKind.LIST, None)
    descriptor = StateDescriptor("s", kind, LONG, user_type, space)
    schema = KeyedStateSchema(STRING, 128, (descriptor,))
    groups = np.array([row[0] for row in rows], np.int32)
    keys, users = pa.array([row[2] for row in rows], pa.string()), pa.array([row[1] for row in rows], pa.int64())
    spaces, space_bytes = namespace(space, [row[3] for row in rows])
    encoded = encode_keys(schema, descriptor, keys, groups, users if in_map else None, namespaces=spaces)
    texts = codec_of(STRING).encode(keys).to_list()
    tails = [struct.pack(">q", row[1]) if in_map else b"" for row in rows]
    parts = zip(rows, texts, space_bytes, tails, strict=True)
    assert encoded.to_list() == [bytes([row[0]]) + text + between + tail for row, text, between, tail in parts]
    decoded = decode_keys(schema, descriptor, encoded)
    assert decoded.keys.equals(keys)
    assert decoded.namespaces is not None
    assert decoded.namespaces.equals(spaces)
    assert decoded.user_keys is None or decoded.user_keys.equals(users)


def test_headers_keep_windows_and_timers() -> None:
    """The order of the states, which gives their ids, is kept."""
    states = (
        timers_descriptor(PROCESSING_TIMERS, "a"),
        StateDescriptor("m", StateKind.MAP, LONG, STRING, TIME_WINDOW),
        timers_descriptor(EVENT_TIMERS, "m", TIME_WINDOW),
        StateDescriptor("windows", StateKind.LIST, Tuple((TIME_WINDOW, TIME_WINDOW))),
        StateDescriptor("g", StateKind.REDUCING, LONG, None, GLOBAL_WINDOW),
    )
    schema = KeyedStateSchema(Tuple((STRING, LONG)), 128, states)
    data = encode_header(schema, True)
    assert decode_header(data, 128) == (schema, True, len(data))


def test_types_of_windows_are_read_back_from_their_text() -> None:
    for type_ in (TIME_WINDOW, GLOBAL_WINDOW, MapOf(TIME_WINDOW, GLOBAL_WINDOW)):
        assert parse_type(str(type_)) == type_


@pytest.mark.parametrize(
    "damaged", [b"\x05" + bytes(7), b"\x05" + bytes(8), b"\x05" + bytes(8) + b"\x01\0\0"], ids=["moment", "key", "more"]
)
def test_damaged_timers_are_refused(damaged: bytes) -> None:
    descriptor = timers_descriptor(EVENT_TIMERS, "w")
    schema = KeyedStateSchema(STRING, 128, (descriptor,))
    with pytest.raises(CorruptStateError):
        decode_keys(schema, descriptor, from_list([damaged]))
    with pytest.raises(CorruptStateError, match="expected no value, found 1 bytes"):
        decode_values(descriptor, concat([from_list([b""]), from_list([b"x"])]))


def test_names_of_timer_states_are_reserved() -> None:
    for name, kind in (("_timer_state/event_a", StateKind.VALUE), ("a", StateKind.TIMERS)):
        with pytest.raises(InvalidRequestError) as caught:
            StateDescriptor(name, kind, VOID)
        assert caught.value.kind == "bad-state-name"
