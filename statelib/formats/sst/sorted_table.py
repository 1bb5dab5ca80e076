"""The reader of RocksDB's sorted files (SST, the block-based table), which moves columns: no object per entry.

It reads the tables that Flink and statelib write with default settings. Any other table is recognised as unreadable
before an entry is read. Source: docs/spec/formats.md#rocksdb-tables; RocksDB's documentation of the block-based table.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from statelib.formats.sst.stored_blocks import CRC32C, PADDING, XXH3, XXH64, StoredBlock, contents_of
from statelib.formats.sst.table_blocks import TRAILING, BlockEntries, entries_of
from statelib.formats.sst.table_index import (
    TRAILER_BYTES,
    Block,
    BlockColumns,
    TableIndex,
    key_value_pairs,
    read_varint,
)
from statelib.wire.ragged import concat

ReadAt = Callable[[int, int], bytes]
"""A function from (offset, length) to the bytes there; it returns fewer bytes if the file ends first."""

_FOOTER = 53
MAGIC = 0x88E241B785F4CFF7
"""The last eight bytes of a table, as a little-endian number."""
_FORMATS = range(2, 6)
"""The format versions that are read. From version 6 on, the checksum of a block depends on its offset."""
_GAP_BYTES = 8 * 1024
"""The bytes between two blocks up to which they are read at once, because a request costs more than these bytes."""
_BINARY, _TWO_LEVELS = 0, 2
_PROPERTIES = b"rocksdb.properties"
_FOREIGN = (b"rocksdb.range_del", b"rocksdb.compression_dict")
"""The meta blocks of tables that this reader cannot read."""
_COMPRESSIONS = (b"NoCompression", b"Snappy")
_COMPARATOR = b"leveldb.BytewiseComparator"
_FAMILY = b"rocksdb.column.family.name"
_LEVELS = b"rocksdb.block.based.table.index.type"
_GLOBAL_SEQUENCE = b"rocksdb.external_sst_file.global_seqno"
"""The property of a table that RocksDB took in whole. The sequence number of its entries is in the MANIFEST."""
SEQUENCE_ZERO = b"statelib.sequence_zero"
"""The property of a table of :mod:`statelib.formats.sst.table_writer`: the keys of its entries are distinct, and their
sequence number is 0."""
_ABSENT = (b"rocksdb.merge.operands", b"rocksdb.num.range-deletions")
"""The properties that count entries which this reader cannot read."""


@dataclass(frozen=True)
class Table:
    """One open table.

    ``family``: the column family that it was written for. ``readable``: whether it holds only puts and deletes, in
    blocks that this reader can decode. ``expansion``: the bytes of keys and values per stored byte. ``entries``: the
    number of its entries, as its writer recorded it. ``distinct``: no two entries have the same key.
    """

    name: str
    family: str
    readable: bool
    expansion: float
    entries: int
    distinct: bool
    _checksum: int
    _read: ReadAt = field(repr=False)
    _index: TableIndex = field(repr=False)

    def blocks(self, first: bytes = b"", stop: bytes | None = None) -> Iterator[Block]:
        """Yield the data blocks that may have keys in [first, stop), in key order; all blocks if the index cannot be
        searched. The index is read each time."""
        for part in self._index.parts(first, stop):
            yield from part.take(np.arange(len(part)))

    def block_columns(self) -> BlockColumns:
        """Return all data blocks. The index is read each time."""
        parts = list(self._index.parts())
        return BlockColumns(
            concat([part.last for part in parts]),
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.lengths for part in parts]),
        )

    def read(self, blocks: Sequence[Block]) -> BlockEntries:
        """Return the entries of neighbouring blocks, of which there must be at least one.

        Raise CorruptStateError (``corrupt-rocksdb``).
        """
        return self._entries(self._stored(blocks))

    def read_apart(self, blocks: Sequence[Block], mapped: Callable[..., Iterable[Any]] = map) -> BlockEntries:
        """Return the entries of some blocks in ascending order, of which there must be at least one. Blocks that lie
        close to each other are read at once. ``mapped``: a function as ``map``, which may read side by side.

        Raise CorruptStateError (``corrupt-rocksdb``).
        """
        return self._entries(block for run in mapped(self._stored, list(_runs(blocks))) for block in run)

    def _entries(self, blocks: Iterable[StoredBlock]) -> BlockEntries:
        return entries_of(contents_of(blocks, self._checksum, self.name), self.name)

    def _stored(self, blocks: Sequence[Block]) -> list[StoredBlock]:
        """Return blocks that are read at once, with what lies between them."""
        begin, last = blocks[0].offset, blocks[-1]
        raw = memoryview(self._read(begin, last.offset + last.length + TRAILER_BYTES - begin))
        return [(at, size, raw[at - begin : at - begin + size + TRAILER_BYTES]) for _, at, size in blocks]


def _runs(blocks: Sequence[Block]) -> Iterator[Sequence[Block]]:
    """Yield the blocks in runs with at most :data:`_GAP_BYTES` between neighbours."""
    begin = 0
    for number in range(1, len(blocks) + 1):
        before = blocks[number - 1]
        if number == len(blocks) or blocks[number].offset - (before.offset + before.length) > _GAP_BYTES:
            yield blocks[begin:number]
            begin = number


def open_table(read: ReadAt, size: int, name: str) -> Table | None:
    """Open a table of ``size`` bytes. Return None if it is so different or so old that nothing about it can be read.

    ``name`` names it in errors. Raise CorruptStateError (``corrupt-rocksdb``).
    """
    footer = read(max(size - _FOOTER, 0), _FOOTER)
    if len(footer) < _FOOTER or int.from_bytes(footer[-8:], "little") != MAGIC:
        return None
    checksum = footer[0]
    if int.from_bytes(footer[-12:-8], "little") not in _FORMATS or checksum not in {CRC32C, XXH64, XXH3}:
        return None

    def block(offset: int, length: int) -> bytes:
        stored = (offset, length, memoryview(read(offset, length + TRAILER_BYTES)))
        return contents_of([stored], checksum, name).data[:-PADDING].tobytes()

    meta_offset, at = read_varint(footer, 1)
    meta_length, at = read_varint(footer, at)
    index_offset, at = read_varint(footer, at)
    index_length, at = read_varint(footer, at)
    meta = dict(key_value_pairs(block(meta_offset, meta_length)))
    if _PROPERTIES not in meta:
        return None
    offset, at = read_varint(meta[_PROPERTIES], 0)
    length, at = read_varint(meta[_PROPERTIES], at)
    properties = dict(key_value_pairs(block(offset, length)))
    if not properties.keys() >= {_FAMILY, _LEVELS, *_ABSENT}:
        return None
    trailing = 0 if _property_number(properties, b"rocksdb.index.key.is.user.key") else TRAILING
    kind = int.from_bytes(properties[_LEVELS], "little")
    has_deltas = bool(_property_number(properties, b"rocksdb.index.value.is.delta.encoded"))
    index = TableIndex(block, index_offset, index_length, kind // _TWO_LEVELS, has_deltas, trailing)
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
        SEQUENCE_ZERO in properties,
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
        and (_GLOBAL_SEQUENCE not in properties or SEQUENCE_ZERO in properties)
        and not any(_property_number(properties, name) for name in _ABSENT)
    )


def _property_number(properties: dict[bytes, bytes], name: bytes) -> int:
    """Return the number that a property holds; 0 if the property is missing."""
    return read_varint(properties[name], 0)[0] if name in properties else 0
