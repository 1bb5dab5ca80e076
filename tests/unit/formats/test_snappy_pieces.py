"""Snappy's framing in pieces has the same bytes as in one call, whatever the sizes of the pieces."""

import random

import pytest

from statelib.errors import CorruptStateError
from statelib.formats.snappy_framing import compress, compress_pieces, decompress_pieces

CONTENT = random.Random(1).randbytes(90_000) + bytes(200_000)


def cut(data: bytes | memoryview, size: int) -> list[memoryview]:
    view = memoryview(data)
    return [view[at : at + size] for at in range(0, len(view), size)]


@pytest.mark.parametrize("size", [777, 65_536, 65_537, 131_072, 10**6])
def test_pieces_make_the_same_stream(size: int) -> None:
    assert b"".join(compress_pieces(cut(CONTENT, size))) == bytes(compress(CONTENT))
    assert b"".join(compress_pieces(cut(CONTENT[:65_536], size))) == bytes(compress(CONTENT[:65_536]))


@pytest.mark.parametrize("size", [61, 5000, 10**6])
def test_a_stream_read_in_pieces_has_the_same_content(size: int) -> None:
    stream = bytes(compress(CONTENT))
    assert b"".join(part.tobytes() for part in decompress_pieces(cut(stream, size), "it")) == CONTENT
    two = decompress_pieces(cut(stream + stream, size), "them", several=True)
    assert b"".join(part.tobytes() for part in two) == CONTENT + CONTENT


@pytest.mark.parametrize("size", [61, 5000, 10**6])
def test_an_incomplete_stream_is_refused(size: int) -> None:
    stream = bytes(compress(CONTENT))
    for damaged in (stream[:-1], stream + stream, stream[10:], stream + b"\0", stream[:40] + b"\1" + stream[41:]):
        with pytest.raises(CorruptStateError):
            list(decompress_pieces(cut(damaged, size), "it"))
