"""The reader of RocksDB's sorted files (SST, the block-based table), which moves columns: no object per entry.

It reads the tables that Flink and statelib write with default settings. Any other table is recognised as unreadable
before an entry is read. Source: docs/spec/formats.md#rocksdb-tables; RocksDB's documentation of the block-based table.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statelib.errors import CorruptStateError
from statelib.formats.sst.table_blocks import TRAILING, BlockEntries, entries_of
from statelib.serializers.columns.cursors import read_varlen
from statelib.wire.checksum import crc32c, xxh3, xxh64
from statelib.wire.ragged import gather

ReadAt = Callable[[int, int], bytes]
"""A function from (offset, length) to the bytes there; it returns fewer bytes if the file ends first."""

_FOOTER = 53
_MAGIC = 0x88E241B785F4CFF7
_FORMATS = range(2, 6)
"""The format versions that are read. From version 6 on, the checksum of a block depends on its offset."""
_TRAILER = 5
"""The size in bytes of the trailer of each block: the kind of compression, and a checksum."""
_NONE, _SNAPPY = 0, 1
_CRC32C, _XXH64, _XXH3 = 1, 3, 4
_BINARY, _TWO_LEVELS = 0, 2
_PROPERTIES = b"rocksdb.properties"
_FOREIGN = (b"rocksdb.range_del", b"rocksdb.compression_dict")
"""The meta blocks of tables that this reader cannot read."""
_COMPRESSIONS = (b"NoCompression", b"Snappy")
_COMPARATOR = b"leveldb.BytewiseComparator"
_FAMILY = b"rocksdb.column.family.name"
_LEVELS = b"rocksdb.block.based.table.index.type"
_GLOBAL_SEQUENCE = b"rocksdb.external_sst_file.global_seqno"
_ABSENT = (b"rocksdb.merge.operands", b"rocksdb.num.range-deletions")
"""The properties that count entries which this reader cannot read."""


class Block(NamedTuple):
    """The position of one data block.

    ``offset`` and ``length``: its bytes, without the trailer. ``last``: a key that is not below the block's last user
    key, and below the first user key of the next block.
    """

    last: bytes
    offset: int
    length: int


@dataclass(frozen=True)
class Table:
    """One open table.

    ``family``: the column family that it was written for. ``readable``: whether it holds only puts and deletes, in
    blocks that this reader can decode. ``expansion``: the bytes of keys and values per stored byte. ``entries``: the
    number of its entries, as its writer recorded it.
    """

    name: str
    family: str
    readable: bool
    expansion: float
    entries: int
    _checksum: int
    _read: ReadAt = field(repr=False)
    _index: "_Index" = field(repr=False)

    def blocks(self, first: bytes = b"", stop: bytes | None = None) -> Iterator[Block]:
        """Yield the data blocks that may have keys in [first, stop), in key order; all blocks if the index cannot be
        searched. The index is read each time."""
        return self._index.blocks(first, stop)

    def read(self, blocks: Sequence[Block]) -> BlockEntries:
        """Return the entries of neighbouring blocks, of which there must be at least one.

        Raise CorruptStateError (``corrupt-rocksdb``).
        """
        first, last = blocks[0], blocks[-1]
        end = last.offset + last.length + _TRAILER
        raw = memoryview(self._read(first.offset, end - first.offset))
        contents = [
            _content(raw[b.offset - first.offset :], b.offset, b.length, self._checksum, self.name) for b in blocks
        ]
        return entries_of(contents, self.name)


def open_table(read: ReadAt, size: int, name: str) -> Table | None:
    """Open a table of ``size`` bytes. Return None if it is so different or so old that nothing about it can be read.

    ``name`` names it in errors. Raise CorruptStateError (``corrupt-rocksdb``).
    """
    footer = read(max(size - _FOOTER, 0), _FOOTER)
    if len(footer) < _FOOTER or int.from_bytes(footer[-8:], "little") != _MAGIC:
        return None
    checksum = footer[0]
    if int.from_bytes(footer[-12:-8], "little") not in _FORMATS or checksum not in {_CRC32C, _XXH64, _XXH3}:
        return None

    def block(offset: int, length: int) -> bytes:
        return bytes(_content(memoryview(read(offset, length + _TRAILER)), offset, length, checksum, name))

    meta_offset, at = _read_varint(footer, 1)
    meta_length, at = _read_varint(footer, at)
    index_offset, at = _read_varint(footer, at)
    index_length, at = _read_varint(footer, at)
    meta = dict(_key_value_pairs(block(meta_offset, meta_length)))
    if _PROPERTIES not in meta:
        return None
    offset, at = _read_varint(meta[_PROPERTIES], 0)
    length, at = _read_varint(meta[_PROPERTIES], at)
    properties = dict(_key_value_pairs(block(offset, length)))
    if not properties.keys() >= {_FAMILY, _LEVELS, *_ABSENT}:
        return None
    trailing = 0 if _property_number(properties, b"rocksdb.index.key.is.user.key") else TRAILING
    kind = int.from_bytes(properties[_LEVELS], "little")
    has_deltas = bool(_property_number(properties, b"rocksdb.index.value.is.delta.encoded"))
    index = _Index(block, index_offset, index_length, kind // _TWO_LEVELS, has_deltas, trailing)
    return Table(
        name,
        properties[_FAMILY].decode(),
        kind in {_BINARY, _TWO_LEVELS} and _is_plain(properties) and not any(name in meta for name in _FOREIGN),
        (
            _property_number(properties, b"rocksdb.raw.key.size")
            + _property_number(properties, b"rocksdb.raw.value.size")
        )
        / max(_property_number(properties, b"rocksdb.data.size"), 1),
        _property_number(properties, b"rocksdb.num.entries"),
        checksum,
        read,
        index,
    )


def _is_plain(properties: dict[bytes, bytes]) -> bool:
    """Return whether the properties allow reading: usual comparator, usual compression, no merges, no range
    deletions."""
    return (
        properties.get(b"rocksdb.comparator") == _COMPARATOR
        and properties.get(b"rocksdb.compression") in _COMPRESSIONS
        and _GLOBAL_SEQUENCE not in properties
        and not any(_property_number(properties, name) for name in _ABSENT)
    )


def _property_number(properties: dict[bytes, bytes], name: bytes) -> int:
    """Return the number that a property holds; 0 if the property is missing."""
    return _read_varint(properties[name], 0)[0] if name in properties else 0


@dataclass(frozen=True)
class _Index:
    """The reader of a table's index.

    ``block`` reads one block, given its offset and length. ``offset`` and ``length``: the place of the top block.
    ``levels``: the number of index levels below it. ``deltas``: the lengths of neighbouring blocks are stored as
    differences. ``trailing``: the number of bytes after the user key of an index entry.
    """

    block: Callable[[int, int], bytes]
    offset: int
    length: int
    levels: int
    deltas: bool
    trailing: int

    def blocks(self, first: bytes, stop: bytes | None) -> Iterator[Block]:
        """Yield the data blocks as :meth:`Table.blocks`."""
        blocks = self._entries(self.block(self.offset, self.length), first, stop)
        for _ in range(self.levels):
            blocks = chain.from_iterable(
                self._entries(self.block(child.offset, child.length), first, stop) for child in blocks
            )
        return blocks

    def _entries(self, content: bytes, first: bytes, stop: bytes | None) -> Iterator[Block]:
        """Yield the blocks that an index block names, data blocks or those of the level below."""
        if self.deltas:
            entries = _whole_entries(content, first, stop, self.trailing)
            if entries is None:
                entries = _entries_with_deltas(content)
        else:
            entries = _entries_without_deltas(content)
        for key, offset, length in entries:
            yield Block(key[: len(key) - self.trailing], offset, length)


def _whole_entries(
    content: bytes, first: bytes, stop: bytes | None, trailing: int
) -> Iterable[tuple[bytes, int, int]] | None:
    """Return (key, offset, length) per block, read by columns; None if an entry depends on the entry before it. Only
    the blocks that may have keys in [first, stop) are returned."""
    data, end = np.frombuffer(content, np.uint8), _end_of_entries(content)
    if end < 0:
        return None
    bounds = np.append(np.frombuffer(content, "<u4", -1, end)[:-1].astype(np.int64), end)

    def user_key(row: int) -> bytes:
        _, at = _read_varint(content, int(bounds[row]))
        size, at = _read_varint(content, at)
        return content[at : at + size - trailing]

    rows = range(len(bounds) - 1)
    low = max(bisect_left(rows, first, key=user_key) - 1, 0) if first else 0
    high = len(rows) if stop is None else bisect_left(rows, stop, key=user_key) + 1
    bounds = bounds[low : high + 1]
    starts, stops = bounds[:-1], bounds[1:]
    try:
        shared, at = read_varlen(data, starts, stops, "index")
        unshared, key = read_varlen(data, at, stops, "index")
        offsets, at = read_varlen(data, key + unshared, stops, "index")
        lengths, at = read_varlen(data, at, stops, "index")
        keys = gather(data, key, unshared).to_list()
    except (CorruptStateError, IndexError, ValueError):
        return None
    if shared.any() or bool((at != stops).any()):
        return None
    begin = int(bool(keys) and keys[0][: len(keys[0]) - trailing] < first)
    return zip(keys[begin:], offsets[begin:].tolist(), lengths[begin:].tolist(), strict=True)


def _entries_without_deltas(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (key, offset, length) per block of an older version of the format."""
    for key, value in _key_value_pairs(content):
        offset, at = _read_varint(value, 0)
        yield key, offset, _read_varint(value, at)[0]


def _entries_with_deltas(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (key, offset, length) per block, entry by entry."""
    at, end, key, offset, size = 0, _end_of_entries(content), b"", 0, 0
    while at < end:
        shared, at = _read_varint(content, at)
        unshared, at = _read_varint(content, at)
        key = key[:shared] + content[at : at + unshared]
        at += unshared
        if shared:
            offset += size + _TRAILER
            zigzag, at = _read_varint(content, at)
            size += (zigzag >> 1) ^ -(zigzag & 1)
        else:
            offset, at = _read_varint(content, at)
            size, at = _read_varint(content, at)
        yield key, offset, size


def _key_value_pairs(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a small block."""
    at, end, key = 0, _end_of_entries(content), b""
    while at < end:
        shared, at = _read_varint(content, at)
        unshared, at = _read_varint(content, at)
        size, at = _read_varint(content, at)
        key = key[:shared] + content[at : at + unshared]
        at += unshared
        yield key, content[at : at + size]
        at += size


def _end_of_entries(content: bytes) -> int:
    """Return the offset in a block at which its entries end and its restarts begin."""
    return len(content) - 4 - 4 * int.from_bytes(content[-4:], "little")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at ``at``, stored with seven bits per byte and low bits first, and the offset of its end.

    Raise CorruptStateError (``corrupt-rocksdb``).
    """
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise CorruptStateError(
                f"RocksDB's table: expected a number at byte {at} of a block", kind="corrupt-rocksdb"
            )
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _content(raw: memoryview, offset: int, length: int, checksum: int, name: str) -> memoryview | bytes:
    """Return the decompressed content of the block at the start of ``raw``.

    Raise CorruptStateError (``corrupt-rocksdb``) if it is cut, damaged or compressed in another way.
    """
    if len(raw) < length + _TRAILER:
        raise CorruptStateError(
            f"RocksDB's table {name}: expected a block of {length} bytes at byte {offset}, the file ends before",
            kind="corrupt-rocksdb",
        )
    stored = int.from_bytes(raw[length + 1 : length + _TRAILER], "little")
    if stored != _checksum(checksum, bytes(raw[: length + 1])):
        raise CorruptStateError(
            f"RocksDB's table {name}, block at byte {offset}: its checksum does not match", kind="corrupt-rocksdb"
        )
    compression, body = raw[length], raw[:length]
    if compression == _NONE:
        return body
    if compression != _SNAPPY:
        raise CorruptStateError(
            f"RocksDB's table {name}, block at byte {offset}: expected it plain or by Snappy, found {compression}",
            kind="corrupt-rocksdb",
        )
    size, _ = _read_varint(bytes(body[:10]), 0)
    try:
        return bytes(pa.decompress(body, size, "snappy", asbytes=True))
    except (OSError, pa.ArrowException, MemoryError) as error:
        raise CorruptStateError(
            f"RocksDB's table {name}, block at byte {offset}: {error}", kind="corrupt-rocksdb"
        ) from error


def _checksum(kind: int, data: bytes) -> int:
    """Return the checksum of a block and of the byte for its compression."""
    if kind == _CRC32C:
        crc = crc32c(data)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    if kind == _XXH64:
        return xxh64(data) & 0xFFFFFFFF
    return (xxh3(data[:-1]) & 0xFFFFFFFF) ^ (data[-1] * 0x6B9083D9 & 0xFFFFFFFF)
