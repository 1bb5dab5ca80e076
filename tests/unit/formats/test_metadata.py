"""`_metadata` version 3: exact bytes of a small one, round trips, refusals."""

import struct

import pytest

from statelib.errors import CorruptStateError, InvalidRequestError, StatelibError, UnsupportedError
from statelib.formats.metadata.metadata_file import decode_metadata, encode_metadata
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
)
from statelib.model.key_groups import KeyGroupRange

INLINE = ByteStreamStateHandle("name", b"\x00\x01")
FILE = FileStateHandle("s3://b/x", 7)
RELATIVE = RelativeFileStateHandle("a-0-1", 1 << 40)


def one_operator(**state: object) -> CheckpointMetadata:
    subtask = OperatorSubtaskState(**state)
    return CheckpointMetadata(17, (OperatorState(operator_id("keyed"), 3, 128, ((2, subtask),)),))


EVERYTHING = CheckpointMetadata(
    1,
    (
        OperatorState(
            operator_id("a"),
            3,
            128,
            (
                (
                    0,
                    OperatorSubtaskState(
                        KeyGroupsSavepointStateHandle(KeyGroupRange(0, 2), (0, 99, 0), RELATIVE),
                        OperatorStreamStateHandle((("x", 0, (5, 6)), ("y", 1, ()), ("z", 2, (9,))), INLINE),
                    ),
                ),
                (1, OperatorSubtaskState(finished=True)),
                (
                    2,
                    OperatorSubtaskState(
                        keyed=IncrementalRemoteKeyedStateHandle(
                            1,
                            "uid",
                            KeyGroupRange(86, 127),
                            1234,
                            INLINE,
                            (("000012.sst", FILE),),
                            (("CURRENT", INLINE), ("MANIFEST-000004", RELATIVE)),
                            "id",
                        ),
                        raw_keyed=KeyGroupsStateHandle(KeyGroupRange(86, 87), (-1, 0), FILE, "raw"),
                        raw_operator=OperatorStreamStateHandle((), INLINE),
                    ),
                ),
            ),
        ),
        OperatorState(operator_id("b"), 2, 128, (), coordinator=INLINE, finished=True),
        OperatorState(operator_id("c"), 1, 32768, ((0, OperatorSubtaskState()),)),
    ),
)


def test_small_metadata_have_these_exact_bytes() -> None:
    handle = KeyGroupsSavepointStateHandle(KeyGroupRange(86, 87), (0, 363), RelativeFileStateHandle("f", 400))
    expected = (
        bytes.fromhex("4960672d 00000003 0000000000000011 00000000 00000001")
        + bytes.fromhex("e7beec23fd9f6ed5e1b8395129d43728 00000003 00000080 00 00000001")
        + bytes.fromhex("00000002 00000000 00000000")
        + bytes.fromhex("07 00000056 00000002 0000000000000000 000000000000016b 06 0001 66 0000000000000190")
        + bytes.fromhex("00 00000000 00000000")
    )
    assert encode_metadata(one_operator(keyed=handle)) == expected


def test_metadata_with_every_kind_of_handle_are_read_back() -> None:
    data = encode_metadata(EVERYTHING)
    assert decode_metadata(data) == (EVERYTHING, len(data))


def test_bytes_after_the_metadata_are_not_read() -> None:
    data = encode_metadata(EVERYTHING)
    assert decode_metadata(data + b"more") == (EVERYTHING, len(data))


def test_every_truncation_is_detected() -> None:
    data = encode_metadata(EVERYTHING)
    for size in range(len(data)):
        with pytest.raises(CorruptStateError):
            decode_metadata(data[:size])


def test_a_flipped_bit_raises_at_most_a_typed_error() -> None:
    data = encode_metadata(EVERYTHING)
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        try:
            decode_metadata(bytes(damaged))
        except (CorruptStateError, UnsupportedError) as error:
            assert "_metadata" in error.message  # noqa: PT017 - the loop needs both outcomes


def test_the_error_names_the_file_and_the_unknown_handle() -> None:
    data = encode_metadata(one_operator())
    place = len(data) - 10
    assert data[place] == 0
    with pytest.raises(UnsupportedError, match=f"chk-7/_metadata: unknown handle tag 15 at offset {place}") as caught:
        decode_metadata(data[:place] + b"\x0f" + data[place + 1 :], "chk-7/_metadata")
    assert caught.value.kind == "unknown-handle"


@pytest.mark.parametrize(
    ("place", "value", "error"),
    [
        (0, 0x4960672E, CorruptStateError),
        (4, 1, UnsupportedError),
        (4, 8, UnsupportedError),
        (8, 0xFFFFFFFF, CorruptStateError),
        (16, 0x7FFFFFFF, CorruptStateError),
        (20, 0x7FFFFFFF, CorruptStateError),
        (40, 32769, CorruptStateError),
        (44, 32769, CorruptStateError),
        (49, 4, CorruptStateError),
        (53, 3, CorruptStateError),
        (57, 2, CorruptStateError),
    ],
    ids=[
        "magic", "version 1", "version 8", "checkpoint id", "master states", "operators", "parallelism",
        "max parallelism", "more subtasks than parallelism", "subtask index", "flag",
    ],
)  # fmt: skip
def test_impossible_numbers_are_refused(place: int, value: int, error: type[StatelibError]) -> None:
    data = bytearray(encode_metadata(one_operator()))
    struct.pack_into(">I", data, place, value)
    with pytest.raises(error):
        decode_metadata(bytes(data))


def test_a_subtask_that_is_listed_twice_is_refused() -> None:
    operator = OperatorState(operator_id("a"), 2, 128, ((1, OperatorSubtaskState()), (1, OperatorSubtaskState())))
    with pytest.raises(CorruptStateError, match="twice"):
        decode_metadata(encode_metadata(CheckpointMetadata(1, (operator,))))


def test_in_flight_buffers_are_not_dropped_silently() -> None:
    with pytest.raises(InvalidRequestError, match="2 handles of in-flight buffers"):
        encode_metadata(one_operator(channel_handles=2))


def later_version(version: int, names: bytes, channels: bytes) -> bytes:
    """Return metadata with one operator with one subtask that has ``channels``, in the layout of versions 4 to 6."""
    head = struct.pack(">IiqII", 0x4960672D, version, 5, 0, 1)
    operator = names + operator_id("a") + struct.pack(">II", 1, 128) + b"\0" + struct.pack(">I", 1)
    subtask = struct.pack(">III", 0, 0, 0) + b"\0\0" + channels
    return head + operator + subtask + b"\xac\xed\x00\x05 any Java object"


def test_channel_state_is_counted_and_skipped() -> None:
    inline = b"\x01\x00\x01n" + struct.pack(">I", 3) + b"abc"
    plain = struct.pack(">IIIIqq", 0, 1, 2, 1, 4, 3) + inline
    merged = b"\x03" + struct.pack(">Iq", 0, 3) + inline + struct.pack(">I", 2) + b"xy"
    one = struct.pack(">I", 1)
    v5 = later_version(5, b"\x00\x04name\x00\x03uid", one + plain + one + plain)
    v6 = later_version(6, b"\x00\x00\x00\x03uid", one + merged + one + b"\x02" + plain)
    for data, name in ((v5, "name"), (v6, "")):
        metadata, end = decode_metadata(data)
        assert end == len(data)
        (operator,) = metadata.operators
        assert (operator.name, operator.uid) == (name, "uid")
        assert operator.subtasks == (
            (
                0,
                OperatorSubtaskState(
                    channel_handles=2, channel_bytes=6, channel_streams=(ByteStreamStateHandle("n", b"abc"),)
                ),
            ),
        )


def test_version_2_without_legacy_state_is_read() -> None:
    head = struct.pack(">IiqII", 0x4960672D, 2, 5, 0, 1)
    operator = operator_id("a") + struct.pack(">IIII", 2, 128, 1, 1)
    subtask = struct.pack(">IqI", 1, 0, 0) + struct.pack(">II", 0, 0) + b"\0\0"
    metadata, end = decode_metadata(head + operator + subtask)
    assert end == len(head + operator + subtask)
    assert metadata == CheckpointMetadata(
        5, (OperatorState(operator_id("a"), 2, 128, ((1, OperatorSubtaskState()),)),), version=2
    )


def test_master_states_are_skipped() -> None:
    data = encode_metadata(one_operator())
    state = struct.pack(">II", 0xC96B1696, 3) + b"abc"
    changed = data[:16] + struct.pack(">I", 2) + state * 2 + data[20:]
    assert decode_metadata(changed) == (one_operator(), len(changed))


@pytest.mark.parametrize(("reference", "marker"), [(b"", 0), (struct.pack(">q", 41), 1), (b"", 2)])
def test_version_7_has_the_checkpoint_of_each_subtask(reference: bytes, marker: int) -> None:
    """Metadata of version 7 are those of version 6 with a marker after each subtask."""
    plain = one_operator(keyed=KeyGroupsSavepointStateHandle(KeyGroupRange(0, 0), (0,), INLINE))
    data = encode_metadata(plain)
    body = data[:24] + bytes(4) + data[24:] + bytes([marker]) + reference
    newest = body[:4] + struct.pack(">i", 7) + body[8:] + bytes.fromhex("aced0005") + b"properties"
    if marker == 2:
        with pytest.raises(CorruptStateError, match="marker 2"):
            decode_metadata(newest)
        return
    result, end = decode_metadata(newest)
    assert (result.version, result.operators, end) == (7, plain.operators, len(newest))
