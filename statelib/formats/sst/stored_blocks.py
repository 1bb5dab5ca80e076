"""Blocks of RocksDB's tables as they are stored: behind each is a byte for its compression, and a checksum.

Source: docs/spec/formats.md#rocksdb-tables; RocksDB's documentation of the block-based table.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import cramjam
import numpy as np

from statelib.errors import CorruptStateError
from statelib.formats.sst.table_index import TRAILER_BYTES, read_varint
from statelib.wire.checksum import crc32c, xxh3, xxh64
from statelib.wire.ragged import Bytes

PLAIN, SNAPPY = 0, 1
"""How a block is compressed."""
CRC32C, XXH64, XXH3 = 1, 3, 4
"""The kinds of checksums."""
PADDING = 8
"""The number of bytes behind all contents, so that a number near their end can be read as one of eight bytes."""
_MOST_EXPANSION = 22
"""The number of bytes that a byte of Snappy stands for at most: three of them copy up to 64."""
StoredBlock = tuple[int, int, memoryview]
"""A block: its offset in the table, its length without the trailer, and the stored bytes with the trailer."""


@dataclass(frozen=True, eq=False)
class Contents:
    """The contents of blocks, one after the other. ``data``: their bytes, with :data:`PADDING` bytes behind the last.
    ``lengths``: the number of bytes of each."""

    data: Bytes
    lengths: list[int]


def contents_of(blocks: Iterable[StoredBlock], checksum: int, name: str) -> Contents:
    """Return the decompressed contents of blocks. ``checksum``: the kind of their checksums. ``name``: the table, for
    errors.

    Raise CorruptStateError (``corrupt-rocksdb``) if a block is cut, damaged or compressed in another way.
    """
    bodies, lengths = [], []
    for offset, length, stored in blocks:
        body, kind = _proven(offset, length, stored, checksum, name)
        size = length if kind == PLAIN else read_varint(body, 0)[0]
        if size > _MOST_EXPANSION * length:
            raise _corrupt(name, offset, f"expected at most {_MOST_EXPANSION * length} bytes of content, found {size}")
        bodies.append((offset, kind, body))
        lengths.append(size)
    data = np.zeros(sum(lengths) + PADDING, np.uint8)
    target, at = memoryview(data.data), 0
    for (offset, kind, body), size in zip(bodies, lengths, strict=True):
        if kind == PLAIN:
            target[at : at + size] = body
        else:
            try:
                cramjam.snappy.decompress_raw_into(body, target[at : at + size])
            except cramjam.DecompressionError as error:
                raise _corrupt(name, offset, str(error)) from error
        at += size
    return Contents(data, lengths)


def _proven(offset: int, length: int, stored: memoryview, checksum: int, name: str) -> tuple[memoryview, int]:
    """Return a block without its trailer, and how it is compressed, after its checksum has been compared."""
    if len(stored) < length + TRAILER_BYTES:
        raise CorruptStateError(
            f"RocksDB's table {name}: expected a block of {length} bytes at byte {offset}, the file ends before",
            kind="corrupt-rocksdb",
        )
    if int.from_bytes(stored[length + 1 :], "little") != block_checksum(checksum, stored[: length + 1]):
        raise _corrupt(name, offset, "its checksum does not match")
    kind = stored[length]
    if kind not in (PLAIN, SNAPPY):
        raise _corrupt(name, offset, f"expected it plain or by Snappy, found {kind}")
    return stored[:length], kind


def block_checksum(kind: int, data: bytes | memoryview) -> int:
    """Return the checksum of a block and of the byte for its compression."""
    if kind == CRC32C:
        crc = crc32c(data)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    if kind == XXH64:
        return xxh64(data) & 0xFFFFFFFF
    return (xxh3(data[:-1]) & 0xFFFFFFFF) ^ (data[-1] * 0x6B9083D9 & 0xFFFFFFFF)


def _corrupt(name: str, offset: int, problem: str) -> CorruptStateError:
    return CorruptStateError(f"RocksDB's table {name}, block at byte {offset}: {problem}", kind="corrupt-rocksdb")
