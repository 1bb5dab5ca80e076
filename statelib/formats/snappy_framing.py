"""Snappy's framing format: how Flink compresses each key group of a canonical stream.

Source: flink-formats.md section 3.1; chunks of ``u8 type, u24 LE length, data`` after a stream
identifier. Unlike Flink's own reader this one checks every chunk's checksum.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import cramjam
import numpy as np

from statelib.errors import CorruptStateError
from statelib.wire.checksum import crc32c
from statelib.wire.ragged import Bytes

STREAM_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED, _UNCOMPRESSED, _IDENTIFIER = 0x00, 0x01, 0xFF
_FIRST_SKIPPABLE = 0x80
_CHUNK_HEAD = 8
"""Type, length and checksum of a chunk."""
_MAX_CHUNK = 65536
_MAX_RATIO = 22
"""Snappy's densest element turns 3 bytes into 64."""
_U32_LE = struct.Struct("<I")


@dataclass(frozen=True)
class _Chunk:
    kind: int
    crc: int
    start: int
    end: int
    size: int
    """Bytes after decompression."""


def compress(data: bytes | bytearray | memoryview) -> memoryview:
    """One framed stream with its identifier; blocks that do not shrink are stored as they are."""
    return memoryview(cramjam.snappy.compress(data))


def compress_pieces(pieces: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """One framed stream of all pieces, to the byte as :func:`compress` makes of them joined; one piece at least."""
    rest, skipped = b"", 0
    for piece in pieces:
        data = memoryview(b"".join((rest, piece)))
        # a chunk holds _MAX_CHUNK bytes, only the last one fewer
        cut = max(len(data) - 1, 0) // _MAX_CHUNK * _MAX_CHUNK
        if cut:
            yield compress(data[:cut])[skipped:]
            skipped = len(STREAM_IDENTIFIER)
        rest = bytes(data[cut:])
    yield compress(rest)[skipped:]


def decompress(data: memoryview, what: str) -> tuple[Bytes, int]:
    """Decode the one stream at the start of ``data``: its content and how long it is in ``data``.

    The stream ends where the next identifier begins, or at the end. ``what`` names it in errors.
    Raises CorruptStateError (``bad-compression``, ``checksum-mismatch``).
    """
    chunks, end = _chunks(data, what)
    return _decoded(data, chunks, what), end


def decompress_blocks(data: memoryview, start: int, what: str) -> tuple[Bytes, dict[int, int]]:
    """Decode all chunks from ``start`` to the end of ``data``, and where each of them lies in the content, by its
    offset in ``data``; the end is there too. Raises as :func:`decompress`, also where no chunk begins at ``start``."""
    chunks: list[_Chunk] = []
    at = start
    while at < len(data):
        more, end = _chunks(data[at:], what)
        chunks += [replace(chunk, start=chunk.start + at, end=chunk.end + at) for chunk in more]
        at += end
    places, size = {len(data): sum(chunk.size for chunk in chunks)}, 0
    for chunk in chunks:
        places[chunk.start - _CHUNK_HEAD] = size
        size += chunk.size
    return _decoded(data, chunks, what), places


def decompress_pieces(pieces: Iterable[memoryview], what: str, *, several: bool = False) -> Iterator[Bytes]:
    """As :func:`decompress`, of a stream that comes in pieces, nothing behind it: its content in parts.

    ``several``: other streams may follow, whose contents are joined to that of the first."""
    rest, begun = memoryview(b""), False
    for piece in pieces:
        data = memoryview(b"".join((rest, piece)))
        chunks, end = _whole_chunks(data, begun, several, what)
        rest, begun = data[end:], begun or end > 0
        yield _decoded(data, chunks, what)
    if len(rest):
        _chunks(memoryview(b"".join((STREAM_IDENTIFIER, rest))), what)
        raise _corrupt(what, 0, "data behind its end")


def _whole_chunks(data: memoryview, begun: bool, several: bool, what: str) -> tuple[list[_Chunk], int]:
    """The data chunks that lie in ``data`` whole, identifiers left out, and where the last chunk ends."""
    chunks: list[_Chunk] = []
    at = 0
    while at + 4 <= len(data):
        kind, end = data[at], at + 4 + int.from_bytes(data[at + 1 : at + 4], "little")
        if end > len(data):
            break
        if kind == _IDENTIFIER or not begun:
            if bytes(data[at:end]) != STREAM_IDENTIFIER or (begun and not several):
                raise _corrupt(what, at, "expected the identifier of a Snappy framed stream, once")
            begun = True
        else:
            found = _chunk_at(data, kind, at + 4, end, what)
            chunks += [found] if found else []
        at = end
    return chunks, at


def _chunk_at(data: memoryview, kind: int, start: int, end: int, what: str) -> _Chunk | None:
    """None for padding and what else may be skipped."""
    if kind in (_COMPRESSED, _UNCOMPRESSED):
        return _data_chunk(data, kind, start, end, what)
    if kind < _FIRST_SKIPPABLE:
        raise _corrupt(what, start - 4, f"chunk type {kind:#04x} is reserved")
    return None


def _decoded(data: memoryview, chunks: Sequence[_Chunk], what: str) -> Bytes:
    out = np.empty(sum(chunk.size for chunk in chunks), np.uint8)
    at = 0
    for chunk in chunks:
        target = out[at : at + chunk.size]
        _decode(data, chunk, target, what)
        if _masked(crc32c(target.tobytes())) != chunk.crc:
            raise CorruptStateError(
                f"{what}: checksum of the compressed chunk at offset {chunk.start} does not match its content",
                kind="checksum-mismatch",
            )
        at += chunk.size
    return out


def _chunks(data: memoryview, what: str) -> tuple[list[_Chunk], int]:
    """Where the data chunks lie; nothing is allocated by their claims yet."""
    if bytes(data[: len(STREAM_IDENTIFIER)]) != STREAM_IDENTIFIER:
        raise _corrupt(what, 0, "expected the identifier of a Snappy framed stream")
    chunks: list[_Chunk] = []
    at = len(STREAM_IDENTIFIER)
    while at < len(data) and data[at] != _IDENTIFIER:
        if at + 4 > len(data):
            raise _corrupt(what, at, "chunk header cut short")
        kind, start = data[at], at + 4
        end = start + int.from_bytes(data[at + 1 : at + 4], "little")
        if end > len(data):
            raise _corrupt(what, at, f"chunk of {end - start} bytes, found {len(data) - start}")
        found = _chunk_at(data, kind, start, end, what)
        chunks += [found] if found else []
        at = end
    return chunks, at


def _data_chunk(data: memoryview, kind: int, start: int, end: int, what: str) -> _Chunk:
    if end - start < 4:
        raise _corrupt(what, start, "chunk without checksum")
    crc = _U32_LE.unpack_from(data, start)[0]
    payload = end - start - 4
    size = payload if kind == _UNCOMPRESSED else _claimed_size(data, start + 4, end, what)
    if size > _MAX_CHUNK or size > payload * _MAX_RATIO:
        raise _corrupt(what, start, f"chunk claims {size} bytes out of {payload}")
    return _Chunk(kind, crc, start + 4, end, size)


def _claimed_size(data: memoryview, at: int, end: int, what: str) -> int:
    """The varint in front of raw Snappy data; at most 3 bytes for a legal chunk."""
    size = 0
    for index, byte in enumerate(data[at : min(at + 3, end)]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise _corrupt(what, at, f"length of a chunk: expected at most {_MAX_CHUNK}")


def _decode(data: memoryview, chunk: _Chunk, target: Bytes, what: str) -> None:
    if chunk.kind == _UNCOMPRESSED:
        target[:] = np.frombuffer(data[chunk.start : chunk.end], np.uint8)
        return
    try:
        written = cramjam.snappy.decompress_raw_into(data[chunk.start : chunk.end], memoryview(target.data))
    except cramjam.DecompressionError as error:
        raise _corrupt(what, chunk.start, str(error)) from error
    if written != chunk.size:
        raise _corrupt(what, chunk.start, f"chunk of {written} bytes, expected {chunk.size}")


def _masked(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _corrupt(what: str, offset: int, problem: str) -> CorruptStateError:
    return CorruptStateError(f"{what}: {problem} (at offset {offset} of the stream)", kind="bad-compression")
