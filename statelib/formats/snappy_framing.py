"""Snappy's framing format, in which Flink compresses each key group of a canonical stream.

A stream is an identifier, then chunks of ``u8 type, u24 LE length, data``. Unlike Flink's own reader, this one checks
the checksum of every chunk. Source: docs/spec/formats.md#snappy-framing.
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
"""The size in bytes of a chunk's type, length and checksum."""
_MAX_CHUNK = 65536
_MAX_RATIO = 22
"""The upper bound of the compression ratio: Snappy's densest element turns 3 bytes into 64."""
_U32_LE = struct.Struct("<I")


@dataclass(frozen=True)
class _Chunk:
    """The position of one data chunk; ``data[start:end]`` is its content, without type, length and checksum."""

    kind: int
    crc: int
    start: int
    end: int
    size: int
    """The size of the content in bytes after decompression."""


def compress(data: bytes | bytearray | memoryview) -> memoryview:
    """Return ``data`` as one framed stream with its identifier; blocks that do not shrink are stored uncompressed."""
    return memoryview(cramjam.snappy.compress(data))


def compress_pieces(pieces: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Yield one framed stream of all pieces. Its bytes are those that :func:`compress` makes of the joined pieces.

    Without any piece, the stream holds no data. At least one piece is yielded.
    """
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
    """Return the content of the one stream at the start of ``data``, and the number of bytes it takes in ``data``.

    The stream ends where the next identifier begins, or at the end of ``data``. ``what`` names it in errors. Raise
    CorruptStateError (``bad-compression``, ``checksum-mismatch``).
    """
    chunks, end = _stream_chunks(data, what)
    return _decode_all(data, chunks, what), end


def decompress_blocks(data: memoryview, start: int, what: str) -> tuple[Bytes, dict[int, int]]:
    """Return the joined content of all streams from ``start`` to the end of ``data``, and where each chunk lies in it.

    The second value maps the offset of each chunk in ``data`` to its offset in the content; the end of ``data`` is
    mapped to the size of the content. Raise the errors of :func:`decompress`, also if no stream begins at ``start``.
    """
    chunks: list[_Chunk] = []
    at = start
    while at < len(data):
        more, end = _stream_chunks(data[at:], what)
        chunks += [replace(chunk, start=chunk.start + at, end=chunk.end + at) for chunk in more]
        at += end
    content_offsets, size = {len(data): sum(chunk.size for chunk in chunks)}, 0
    for chunk in chunks:
        content_offsets[chunk.start - _CHUNK_HEAD] = size
        size += chunk.size
    return _decode_all(data, chunks, what), content_offsets


def decompress_pieces(pieces: Iterable[memoryview], what: str, *, several: bool = False) -> Iterator[Bytes]:
    """Yield the content of a framed stream that arrives in pieces, part by part. No other bytes may follow the stream.

    ``several``: other framed streams may follow the first; their contents are yielded too. Raise the errors of
    :func:`decompress`.
    """
    rest, begun = memoryview(b""), False
    for piece in pieces:
        data = memoryview(b"".join((rest, piece)))
        chunks, end = _whole_chunks(data, begun, several, what)
        rest, begun = data[end:], begun or end > 0
        yield _decode_all(data, chunks, what)
    if len(rest):
        _stream_chunks(memoryview(b"".join((STREAM_IDENTIFIER, rest))), what)
        raise _corrupt(what, 0, "data after its end")


def _whole_chunks(data: memoryview, begun: bool, several: bool, what: str) -> tuple[list[_Chunk], int]:
    """Return the data chunks that lie completely in ``data``, and where the last complete chunk of any kind ends.

    Stream identifiers are not among the chunks. ``begun``: the identifier of the stream has been read before.
    """
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
            chunk = _chunk_of_kind(data, kind, at + 4, end, what)
            chunks += [chunk] if chunk else []
        at = end
    return chunks, at


def _chunk_of_kind(data: memoryview, kind: int, start: int, end: int, what: str) -> _Chunk | None:
    """Return the data chunk with the body ``data[start:end]``; None for padding and other kinds that may be skipped."""
    if kind in (_COMPRESSED, _UNCOMPRESSED):
        return _data_chunk(data, kind, start, end, what)
    if kind < _FIRST_SKIPPABLE:
        raise _corrupt(what, start - 4, f"chunk type {kind:#04x} is reserved")
    return None


def _decode_all(data: memoryview, chunks: Sequence[_Chunk], what: str) -> Bytes:
    """Return the content of all chunks, joined. Raise CorruptStateError if a chunk does not match its checksum."""
    out = np.empty(sum(chunk.size for chunk in chunks), np.uint8)
    at = 0
    for chunk in chunks:
        target = out[at : at + chunk.size]
        _decode_chunk(data, chunk, target, what)
        if _masked_crc(crc32c(target.tobytes())) != chunk.crc:
            raise CorruptStateError(
                f"{what}: checksum of the compressed chunk at offset {chunk.start} does not match its content",
                kind="checksum-mismatch",
            )
        at += chunk.size
    return out


def _stream_chunks(data: memoryview, what: str) -> tuple[list[_Chunk], int]:
    """Return the data chunks of the stream at the start of ``data``, and where the stream ends.

    Nothing is decompressed, and no memory is reserved for the sizes that the chunks claim.
    """
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
        chunk = _chunk_of_kind(data, kind, start, end, what)
        chunks += [chunk] if chunk else []
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
    """Return the size that raw Snappy data claims in its leading varint; a legal chunk needs at most 3 bytes for it."""
    size = 0
    for index, byte in enumerate(data[at : min(at + 3, end)]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise _corrupt(what, at, f"length of a chunk: expected at most {_MAX_CHUNK}")


def _decode_chunk(data: memoryview, chunk: _Chunk, target: Bytes, what: str) -> None:
    if chunk.kind == _UNCOMPRESSED:
        target[:] = np.frombuffer(data[chunk.start : chunk.end], np.uint8)
        return
    try:
        written = cramjam.snappy.decompress_raw_into(data[chunk.start : chunk.end], memoryview(target.data))
    except cramjam.DecompressionError as error:
        raise _corrupt(what, chunk.start, str(error)) from error
    if written != chunk.size:
        raise _corrupt(what, chunk.start, f"chunk of {written} bytes, expected {chunk.size}")


def _masked_crc(crc: int) -> int:
    """Return the checksum as the framing format stores it: rotated by 15 bits, plus a constant."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _corrupt(what: str, offset: int, problem: str) -> CorruptStateError:
    return CorruptStateError(f"{what}: {problem} (at offset {offset} of the stream)", kind="bad-compression")
