"""The handles of file merging, byte by byte."""

import struct

import pytest

from statelib.errors import CorruptStateError
from statelib.formats.metadata.handle_codec import read_operator_handle, read_stream_handle, write_stream_handle
from statelib.model.handles import OperatorStreamStateHandle, SegmentFileStateHandle, SegmentScope
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

HANDLE = SegmentFileStateHandle("file:/x", 258, 5, SegmentScope.SHARED, "id")
SEGMENT = struct.pack(">bqqi", 15, 258, 5, 1) + b"\0\x07file:/x" + b"\0\x02id"
STATES = struct.pack(">i", 1) + b"\0\x01s" + struct.pack(">biq", 1, 1, 3)
DIRECTORIES = b"\0\x01a" + b"\0\x01b"


def test_a_segment_handle_has_these_exact_bytes() -> None:
    writer = Writer()
    write_stream_handle(writer, HANDLE)
    assert writer.getvalue() == SEGMENT
    reader = Reader(SEGMENT, "x")
    assert read_stream_handle(reader) == HANDLE
    assert reader.remaining == 0


def test_an_empty_segment_is_no_stream() -> None:
    assert read_stream_handle(Reader(b"\x10", "x")) is None


@pytest.mark.parametrize(("at", "value"), [(1, -1), (9, -1), (13, 2), (13, -1)])
def test_impossible_numbers_are_refused(at: int, value: int) -> None:
    data = bytearray(SEGMENT)
    struct.pack_into(">q" if at < 13 else ">i", data, at if at < 13 else 17, value)
    with pytest.raises(CorruptStateError) as caught:
        read_stream_handle(Reader(bytes(data), "x"))
    assert caught.value.kind == "corrupt-metadata"


@pytest.mark.parametrize("size", range(1, len(SEGMENT)))
def test_every_truncation_is_refused(size: int) -> None:
    with pytest.raises(CorruptStateError):
        read_stream_handle(Reader(SEGMENT[:size], "x"))


def test_merged_operator_state_is_read() -> None:
    reader = Reader(b"\x11" + STATES + DIRECTORIES + b"\0" + SEGMENT + b"rest", "x")
    assert read_operator_handle(reader) == OperatorStreamStateHandle((("s", 1, (3,)),), HANDLE)
    assert bytes(reader.take(4)) == b"rest"


def test_empty_merged_operator_state_is_no_handle() -> None:
    reader = Reader(b"\x11" + struct.pack(">i", 0) + DIRECTORIES + b"\x01\x10rest", "x")
    assert read_operator_handle(reader) is None
    assert bytes(reader.take(4)) == b"rest"
