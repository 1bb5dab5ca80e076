"""Operator state streams, and the source position as one of their states."""

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.errors import CorruptStateError, InvalidRequestError, UnsupportedError
from statelib.formats.operator_state import (
    OperatorStateContent,
    OperatorStream,
    decode_operator_header,
    encode_operator_state,
)
from statelib.formats.source_position import position_content, position_of
from statelib.model.checkpoint import DataInterval, SourcePosition
from statelib.model.handles import ByteStreamStateHandle, OperatorStreamStateHandle
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.types import LONG, STRING, VOID
from statelib.testing.reference import codecs as reference
from statelib.testing.type_strategies import plain_values, state_types
from tests.support.extent import examples

SPLIT, UNION, BROADCAST = OperatorStateMode
NONE_YET = SourcePosition(None, -(2**63))
POSITIONS = [NONE_YET, SourcePosition(DataInterval(1_356_998_400_000, 1_357_084_800_000), 1_357_084_799_999)]


def written(*contents: OperatorStateContent) -> tuple[OperatorStreamStateHandle, bytes]:
    data, offsets = encode_operator_state(contents)
    return OperatorStreamStateHandle(offsets, ByteStreamStateHandle("operator", data)), data


def strings(name: str, *values: str, mode: OperatorStateMode = SPLIT) -> OperatorStateContent:
    return OperatorStateContent(OperatorStateDescriptor(name, mode, STRING), pa.array(values, pa.string()))


def rules(**values: int) -> OperatorStateContent:
    descriptor = OperatorStateDescriptor("rules", BROADCAST, LONG, STRING)
    return OperatorStateContent(descriptor, pa.array(values.values(), pa.int64()), pa.array(values.keys(), pa.string()))


@pytest.mark.parametrize("position", POSITIONS, ids=["none yet", "a day"])
def test_a_source_position_is_read_back(position: SourcePosition) -> None:
    (content,) = OperatorStream(*written(position_content(position))).contents()
    assert position_of(content) == position


def test_a_source_position_has_these_exact_bytes() -> None:
    """The bytes of the row are two kind bits (+I) and three null bits with padding, followed by the longs that are
    set."""
    handle, data = written(position_content(POSITIONS[1]))
    ((name, mode, (offset,)),) = handle.states
    assert (name, mode) == ("statelib.source-position", 0)
    expected = b"\x00" + b"".join(
        n.to_bytes(8, "big") for n in (1_356_998_400_000, 1_357_084_800_000, 1_357_084_799_999)
    )
    assert data[offset:] == expected
    handle, data = written(position_content(NONE_YET))
    assert data[handle.states[0][2][0] :] == b"\x30" + b"\x80" + bytes(7)


def test_header_entries_and_offsets_have_these_exact_bytes() -> None:
    handle, data = written(rules(a=1, b=2), strings("seen", "x", "yz"), strings("all", "q", mode=UNION))
    header = decode_operator_header(data)
    assert data[:4] == b"\0\0\0\x05"
    assert not header.compressed
    modes = [info.options["OPERATOR_STATE_DISTRIBUTION_MODE"] for info in (*header.states, *header.broadcast)]
    assert modes == ["SPLIT_DISTRIBUTE", "UNION", "BROADCAST"]
    at = header.size_bytes
    assert handle.states == (("seen", 0, (at, at + 2)), ("all", 1, (at + 5,)), ("rules", 2, (at + 7,)))
    entries = b"\x02a" + (1).to_bytes(8, "big") + b"\x02b" + (2).to_bytes(8, "big")
    assert data[at:] == b"\x02x" + b"\x03yz" + b"\x02q" + (2).to_bytes(4, "big") + entries


def test_only_the_elements_of_a_redistributed_handle_are_read() -> None:
    """A redistributed handle has the offsets of some elements."""
    handle, data = written(strings("seen", *"abcdef"))
    ((name, mode, offsets),) = handle.states
    (content,) = OperatorStream(
        OperatorStreamStateHandle(((name, mode, (offsets[4], offsets[1])),), handle.stream), data
    ).contents()
    assert content.values.to_pylist() == ["e", "b"]


def test_empty_states_are_stored() -> None:
    handle, data = written(strings("seen"), rules())
    assert [len(content) for content in OperatorStream(handle, data).contents()] == [0, 0]


TYPED = state_types().filter(lambda t: t != VOID).flatmap(lambda t: st.tuples(st.just(t), st.lists(plain_values(t))))


@settings(max_examples=examples(80), deadline=None)
@given(TYPED, TYPED, st.data())
def test_any_content_is_read_back(elements, keys, data) -> None:
    type_, values = elements
    key_type, key_values = keys
    mapped = data.draw(st.lists(plain_values(type_), min_size=len(key_values), max_size=len(key_values)))
    contents = [
        OperatorStateContent(OperatorStateDescriptor("l", SPLIT, type_), reference.arrow(type_, values)),
        OperatorStateContent(OperatorStateDescriptor("u", UNION, type_), reference.arrow(type_, values[:2])),
        OperatorStateContent(
            OperatorStateDescriptor("b", BROADCAST, type_, key_type),
            reference.arrow(type_, mapped),
            reference.arrow(key_type, key_values),
        ),
    ]
    handle, stream = written(*contents)
    opened = OperatorStream(handle, stream)
    for content in contents:
        result = opened.read(content.descriptor)
        assert result.values.equals(content.values)
        assert content.keys is None or result.keys.equals(content.keys)
    assert stream[handle.states[0][2][0] if values else len(stream) :].startswith(
        b"".join(reference.encode(type_, v) for v in values)
    )


def compressed(contents: list[OperatorStateContent]) -> tuple[OperatorStreamStateHandle, bytes]:
    """Return the stream as Flink compresses it: version 6, one framed stream with a cut at every element."""
    handle, data = written(*contents)
    size = decode_operator_header(data).size_bytes
    header = b"\0\0\0\x06\x01" + data[4:size]
    stream = header + b"\xff\x06\x00\x00sNaPpY"
    places: dict[int, int] = {}
    cuts = sorted({offset for _, _, offsets in handle.states for offset in offsets})
    for start, end in zip(cuts, [*cuts[1:], len(data)], strict=True):
        places[start] = len(stream)
        stream += bytes(cramjam.snappy.compress(data[start:end]))[10:]
    states = tuple((name, mode, tuple(places[o] for o in offsets)) for name, mode, offsets in handle.states)
    return OperatorStreamStateHandle(states, handle.stream), stream


def test_compressed_streams_are_read() -> None:
    contents = [strings("seen", "x" * 70_000, "y", "z" * 200_000), strings("all", mode=UNION), rules(a=1)]
    handle, data = compressed(contents)
    opened = OperatorStream(handle, data)
    for content in contents:
        result = opened.read(content.descriptor)
        assert (result.values, result.keys) == (content.values, content.keys)
    states = ((handle.states[0][0], 0, (handle.states[0][2][1] + 1,)),)
    with pytest.raises(CorruptStateError) as caught:
        next(iter(OperatorStream(OperatorStreamStateHandle(states, handle.stream), data).contents()))
    assert caught.value.kind == "bad-offset"


@pytest.mark.parametrize(
    ("version", "message"), [(4, "let Flink 1.8 to 1.16"), (1, "let Flink 1.8 to 1.16"), (7, None)]
)
def test_the_error_for_another_version_names_its_number(version: int, message: str | None) -> None:
    """Versions up to 4 have another layout, which no Flink since 1.17 reads either."""
    _, data = written(strings("seen", "ab"))
    with pytest.raises(UnsupportedError, match=f"version {version}, can be read: 5, 6") as caught:
        decode_operator_header(version.to_bytes(4, "big") + data[4:])
    assert caught.value.kind == "header-version"
    assert (caught.value.hint or "").startswith(message or "")
    assert bool(caught.value.hint) == bool(message)


def test_every_truncation_is_detected() -> None:
    handle, data = written(strings("seen", "ab"), rules(a=1, b=2))
    for size in range(len(data)):
        with pytest.raises(CorruptStateError):
            list(OperatorStream(handle, data[:size]).contents())


@pytest.mark.parametrize("states", [(("other", 0, ()),), (("seen", 1, ()),), (("seen", 2, ()),), (("seen", 7, ()),)])
def test_handle_and_header_must_agree(states) -> None:
    handle, data = written(strings("seen", "ab"))
    with pytest.raises(CorruptStateError) as caught:
        OperatorStream(OperatorStreamStateHandle(states, handle.stream), data)
    assert caught.value.kind == "corrupt-header"


@pytest.mark.parametrize("offset", [-1, 0, 10_000])
def test_offsets_outside_the_content_are_damage(offset: int) -> None:
    handle, data = written(strings("seen", "ab"))
    with pytest.raises(CorruptStateError) as caught:
        list(OperatorStream(OperatorStreamStateHandle((("seen", 0, (offset,)),), handle.stream), data).contents())
    assert caught.value.kind == "bad-offset"


def test_the_count_of_a_broadcast_state_is_checked() -> None:
    handle, data = written(rules(a=1))
    at = handle.states[0][2][0]
    with pytest.raises(CorruptStateError):
        list(OperatorStream(handle, data[:at] + b"\x7f\xff\xff\xff" + data[at + 4 :]).contents())


def test_only_a_broadcast_state_has_a_key_type() -> None:
    for mode, key in ((SPLIT, STRING), (UNION, STRING), (BROADCAST, None)):
        with pytest.raises(InvalidRequestError):
            OperatorStateDescriptor("s", mode, LONG, key)
