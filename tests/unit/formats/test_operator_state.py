"""The source position as Flink operator state."""

import pytest

from statelib.errors import CorruptStateError
from statelib.formats.operator_state import decode_operator_header, decode_source_position, encode_source_position
from statelib.model.checkpoint import DataInterval, SourcePosition
from statelib.model.handles import ByteStreamStateHandle, OperatorStreamStateHandle

NONE_YET = SourcePosition(None, -(2**63))
POSITIONS = [NONE_YET, SourcePosition(DataInterval(1_356_998_400_000, 1_357_084_800_000), 1_357_084_799_999)]


def handle_of(position: SourcePosition) -> tuple[OperatorStreamStateHandle, bytes]:
    data, offsets = encode_source_position(position)
    return OperatorStreamStateHandle((offsets,), ByteStreamStateHandle("position", data)), data


@pytest.mark.parametrize("position", POSITIONS, ids=["none yet", "a day"])
def test_round_trip(position: SourcePosition) -> None:
    handle, data = handle_of(position)
    assert decode_source_position(handle, data) == position


def test_element_bytes() -> None:
    """Row: two kind bits (+I), three null bits, padded; then the longs that are set."""
    handle, data = handle_of(POSITIONS[1])
    ((name, mode, (offset,)),) = handle.states
    assert (name, mode) == ("statelib.source-position", 0)
    expected = b"\x00" + b"".join(
        n.to_bytes(8, "big") for n in (1_356_998_400_000, 1_357_084_800_000, 1_357_084_799_999)
    )
    assert data[offset:] == expected
    handle, data = handle_of(NONE_YET)
    assert data[handle.states[0][2][0] :] == b"\x30" + b"\x80" + bytes(7)


def test_header_is_version_5_without_broadcast_state() -> None:
    handle, data = handle_of(NONE_YET)
    header = decode_operator_header(data)
    assert data[:4] == b"\0\0\0\x05"
    assert (header.compressed, header.broadcast, header.size_bytes) == (False, (), handle.states[0][2][0])
    assert [info.options for info in header.states] == [{"OPERATOR_STATE_DISTRIBUTION_MODE": "SPLIT_DISTRIBUTE"}]


def test_every_cut_is_noticed() -> None:
    handle, data = handle_of(POSITIONS[1])
    for size in range(len(data)):
        with pytest.raises(CorruptStateError):
            decode_source_position(handle, data[:size])


def test_another_state_is_not_taken_for_it() -> None:
    handle, data = handle_of(POSITIONS[1])
    ((_, mode, offsets),) = handle.states
    for states in ((), (("other", mode, offsets),), ((handle.states[0][0], mode, ()),)):
        with pytest.raises(CorruptStateError) as caught:
            decode_source_position(OperatorStreamStateHandle(states, handle.stream), data)
        assert caught.value.kind == "no-source-position"
