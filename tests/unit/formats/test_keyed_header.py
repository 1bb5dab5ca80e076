"""The keyed header: exact bytes, round trips, timers, damage."""

import pytest

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.keyed.header import decode_header, decode_keyed_header, encode_header
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import BYTES, INT, LONG, STRING, VOID, Field, Row, Tuple
from statelib.wire.writer import Writer

LONG_SNAPSHOT = "org.apache.flink.api.common.typeutils.base.LongSerializer$LongSerializerSnapshot"
VOID_NAMESPACE = "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot"
TIMER = "org.apache.flink.streaming.api.operators.TimerSerializerSnapshot"
VALUE = StateDescriptor("v", StateKind.VALUE, LONG)
ALL = KeyedStateSchema(
    Tuple((STRING, LONG)),
    300,
    (
        StateDescriptor("row", StateKind.VALUE, Row((Field("f0", LONG), Field("f1", STRING)))),
        StateDescriptor("list", StateKind.LIST, INT),
        StateDescriptor("map", StateKind.MAP, Tuple((LONG, LONG)), STRING),
        StateDescriptor("sum", StateKind.REDUCING, LONG),
        StateDescriptor("Ünï\0😀", StateKind.AGGREGATING, BYTES),
    ),
)


def simple(writer: Writer, name: str) -> None:
    writer.utf(name)
    writer.i32(3)


def long_value_state(kind: str = "VALUE", ordinal: int = 0) -> bytes:
    writer = Writer()
    writer.utf("v")
    writer.i32(ordinal)
    writer.i32(1)
    writer.utf("KEYED_STATE_TYPE")
    writer.utf(kind)
    writer.i32(2)
    for role, snapshot in (("NAMESPACE_SERIALIZER", VOID_NAMESPACE), ("VALUE_SERIALIZER", LONG_SNAPSHOT)):
        writer.utf(role)
        writer.i32(2)
        simple(writer, snapshot)
    return writer.getvalue()


def timer_state(name: str) -> bytes:
    writer = Writer()
    writer.utf(name)
    writer.i32(3)
    writer.i32(0)
    writer.i32(1)
    writer.utf("VALUE_SERIALIZER")
    writer.i32(2)
    simple(writer, TIMER)
    for number in (0x000DE704, 2, 0x001457FD, 1, 2):
        writer.i32(number)
    simple(writer, LONG_SNAPSHOT)
    simple(writer, VOID_NAMESPACE)
    return writer.getvalue()


def header(*states: bytes, compressed: bool = False, version: int = 6) -> bytes:
    writer = Writer()
    writer.i32(version)
    writer.bool(compressed)
    writer.i32(2)
    simple(writer, LONG_SNAPSHOT)
    writer.i16(len(states))
    for state in states:
        writer.put(state)
    return writer.getvalue()


def test_the_smallest_header_has_these_exact_bytes() -> None:
    schema = KeyedStateSchema(LONG, 128, (VALUE,))
    data = encode_header(schema, compressed=False)
    assert data == header(long_value_state())
    assert len(data) == 363


def test_a_header_with_every_kind_of_state_is_read_back() -> None:
    for compressed in (False, True):
        data = encode_header(ALL, compressed)
        assert decode_header(data + b"entries", 300) == (ALL, compressed, len(data))


def test_a_header_without_states_is_read_back() -> None:
    schema = KeyedStateSchema(STRING, 128, ())
    assert decode_header(encode_header(schema, False), 128)[0] == schema


def test_field_names_are_not_stored() -> None:
    named = StateDescriptor("row", StateKind.VALUE, Row((Field("flights", LONG),)))
    data = encode_header(KeyedStateSchema(LONG, 128, (named,)), False)
    (result,) = decode_header(data, 128)[0].states
    assert result.value_type == Row((Field("f0", LONG),))


def test_timers_keep_their_state_ids() -> None:
    data = header(timer_state("_timer_state/event_user-timers"), long_value_state(), timer_state("_timer_state/x"))
    decoded = decode_keyed_header(data, 128)
    event, other = (
        StateDescriptor(f"_timer_state/{name}", StateKind.TIMERS, VOID) for name in ("event_user-timers", "x")
    )
    assert decoded.schema.states == (event, VALUE, other)
    assert decoded.size_bytes == len(data)


def test_a_key_value_v2_state_has_the_type_of_its_list_elements() -> None:
    decoded = decode_keyed_header(header(long_value_state("LIST", ordinal=4)), 128)
    assert decoded.schema.states == (StateDescriptor("v", StateKind.LIST, LONG),)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (header(version=5), UnsupportedError, "version 5, expected 6"),
        (header(long_value_state(ordinal=5)), UnsupportedError, "type 5"),
        (header(long_value_state(ordinal=1)), UnsupportedError, "OPERATOR in a keyed stream"),
        (header(long_value_state("FOLDING")), UnsupportedError, "'v' of kind 'FOLDING'"),
        (header(long_value_state("LIST")), UnsupportedError, "serializer of long"),
        (header(long_value_state("MAP")), UnsupportedError, "serializer of long"),
    ],
)
def test_unsupported_and_damaged_headers_are_refused(data: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        decode_header(data, 128)


def test_every_truncation_is_detected() -> None:
    data = encode_header(ALL, True)
    for size in range(len(data)):
        with pytest.raises(CorruptStateError):
            decode_header(data[:size], 300)


def test_every_truncation_of_a_header_with_timers_is_detected() -> None:
    data = header(timer_state("t"))
    for size in range(len(data)):
        with pytest.raises(CorruptStateError):
            decode_header(data[:size], 128)
