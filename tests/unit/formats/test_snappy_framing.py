"""Snappy framing: against another implementation of the format, and damaged."""

import random
import struct

import cramjam
import pytest

from statelib.errors import CorruptStateError
from statelib.formats import snappy_framing
from statelib.wire.checksum import crc32c

SAMPLES = [b"", b"a", bytes(100), bytes(range(256)) * 700, random.Random(1).randbytes(200_000)]


@pytest.mark.parametrize("data", SAMPLES[1:], ids=len)
def test_compressed_data_are_readable_by_another_implementation(data: bytes) -> None:
    framed = bytes(snappy_framing.compress(data))
    assert framed.startswith(b"\xff\x06\x00\x00sNaPpY")
    assert bytes(cramjam.snappy.decompress(framed)) == data
    content, consumed = snappy_framing.decompress(memoryview(framed), "x")
    assert content.tobytes() == data
    assert consumed == len(framed)


def test_reading_stops_where_the_next_stream_begins() -> None:
    first, second = (bytes(snappy_framing.compress(data)) for data in (b"one", b"two" * 50))
    content, consumed = snappy_framing.decompress(memoryview(first + second), "x")
    assert (content.tobytes(), consumed) == (b"one", len(first))


def test_uncompressed_and_skippable_chunks_are_read() -> None:
    crc = crc32c(b"hello")
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    stored = b"\x01\x09\x00\x00" + struct.pack("<I", masked) + b"hello"
    data = snappy_framing.STREAM_IDENTIFIER + b"\xfe\x03\x00\x00abc" + stored
    content, consumed = snappy_framing.decompress(memoryview(data), "x")
    assert (content.tobytes(), consumed) == (b"hello", len(data))


@pytest.mark.parametrize(
    "tail",
    [
        b"\x00",
        b"\x00\xff\xff\xff",
        b"\x02\x00\x00\x00",
        b"\x00\x02\x00\x00ab",
        b"\x00\x05\x00\x00\0\0\0\0\xff",
        b"\x00\x08\x00\x00\0\0\0\0\xff\xff\x7f\x00",
        b"\x00\x07\x00\x00\0\0\0\0\x80\x80\x04",
    ],
    ids=["header cut", "beyond the end", "reserved type", "no checksum", "length cut", "length too large", "bomb"],
)
def test_damaged_chunks_are_refused(tail: bytes) -> None:
    with pytest.raises(CorruptStateError, match="some group") as caught:
        snappy_framing.decompress(memoryview(snappy_framing.STREAM_IDENTIFIER + tail), "some group")
    assert caught.value.kind == "bad-compression"


def test_a_stream_without_identifier_is_refused() -> None:
    with pytest.raises(CorruptStateError, match="identifier"):
        snappy_framing.decompress(memoryview(b"\x00\x00\x00\x00"), "x")


def test_no_flipped_bit_changes_the_content_without_an_error() -> None:
    data = b"abcdefgh" * 20
    framed = bytes(snappy_framing.compress(data))
    payload = len(snappy_framing.STREAM_IDENTIFIER) + 4
    noticed = 0
    for position in range(payload * 8, len(framed) * 8):
        damaged = bytearray(framed)
        damaged[position // 8] ^= 1 << position % 8
        try:
            content, _ = snappy_framing.decompress(memoryview(bytes(damaged)), "x")
            # The changed bytes may encode the same content, for example a copy from one period before.
            assert content.tobytes() == data, position
        except CorruptStateError:
            noticed += 1
    assert noticed > 100
