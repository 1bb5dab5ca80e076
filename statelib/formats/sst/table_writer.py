"""The writer of RocksDB's sorted files (SST, the block-based table), which moves columns: no object per entry.

A table has the form in which RocksDB's own writer leaves a file that it will take in from outside: all entries are
puts with the sequence number 0. Source: docs/spec/formats.md#rocksdb-tables.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pyarrow as pa

from statelib.formats.sst.sorted_table import MAGIC, SEQUENCE_ZERO
from statelib.formats.sst.stored_blocks import XXH64, block_checksum
from statelib.formats.sst.table_blocks import TRAILING
from statelib.formats.sst.table_index import TRAILER_BYTES
from statelib.formats.sst.written_blocks import data_blocks
from statelib.serializers.columns.cursors import encode_varlen
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import Ragged, concat, join

_FORMAT = 5
_FOOTER_HANDLES = 40
_NONE, _SNAPPY = b"\0", b"\1"
_WORTHWHILE = 8
"""A block is stored compressed if this saves at least one part in so many. It is RocksDB's rule."""


class TableWriter:
    """A table that is being written. ``write`` takes its bytes in order; ``family`` is the column family's name."""

    def __init__(self, write: Callable[[bytes], object], family: str) -> None:
        self._write, self._family = write, family
        self._codec = pa.Codec("snappy")
        self._at = 0
        self._last: list[Ragged] = []
        self._places: list[tuple[int, int]] = []
        self._entries = self._key_bytes = self._value_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The number of bytes written so far."""
        return self._at

    def add(self, rows: StateRows) -> None:
        """Write entries. Their keys are distinct, in ascending order, and greater than those written before."""
        if not len(rows):
            return
        ends, end = [], -1
        for block, count in data_blocks(rows):
            self._places.append(self._block(block, compressed=True))
            end += count
            ends.append(end)
        self._last.append(rows.keys.take(np.array(ends)))
        self._entries += len(rows)
        self._key_bytes += int(rows.keys.lengths.sum()) + TRAILING * len(rows)
        self._value_bytes += int(rows.values.lengths.sum())

    def finish(self) -> None:
        """Write what follows the entries. There must be at least one entry."""
        data_bytes, places = self._at, self._places
        index = self._block(self._index(), compressed=True)
        properties = {
            **_SAME_IN_ALL,
            b"rocksdb.column.family.name": self._family.encode(),
            b"rocksdb.data.size": _varint(data_bytes),
            b"rocksdb.index.size": _varint(index[1] + TRAILER_BYTES),
            b"rocksdb.num.data.blocks": _varint(len(places)),
            b"rocksdb.num.entries": _varint(self._entries),
            b"rocksdb.raw.key.size": _varint(self._key_bytes),
            b"rocksdb.raw.value.size": _varint(self._value_bytes),
        }
        described = self._block(_small_block(properties), compressed=False)
        meta = self._block(_small_block({b"rocksdb.properties": _handle(described)}), compressed=False)
        handles = (_handle(meta) + _handle(index)).ljust(_FOOTER_HANDLES, b"\0")
        self._write(bytes([XXH64]) + handles + _FORMAT.to_bytes(4, "little") + MAGIC.to_bytes(8, "little"))

    def _block(self, content: bytes, *, compressed: bool) -> tuple[int, int]:
        """Write a block, and return its offset and its length without the trailer."""
        stored, kind = content, _NONE
        if compressed:
            packed = self._codec.compress(content, asbytes=True)
            if len(packed) <= len(content) - len(content) // _WORTHWHILE:
                stored, kind = packed, _SNAPPY
        place, checked = (self._at, len(stored)), stored + kind
        self._write(checked + block_checksum(XXH64, checked).to_bytes(4, "little"))
        self._at += len(stored) + TRAILER_BYTES
        return place

    def _index(self) -> bytes:
        """Return the index: per data block its last user key, its offset and its length. Each entry is a restart."""
        last = concat(self._last)
        offsets, lengths = np.array(self._places, np.int64).T
        none, sizes, offsets_, lengths_ = (
            encode_varlen(column, 7, 0x80) for column in (np.zeros_like(offsets), last.lengths, offsets, lengths)
        )
        entries = join([none, sizes, last, offsets_, lengths_])
        restarts = np.append(entries.starts, len(entries)).astype("<u4")
        return entries.data.tobytes() + restarts.tobytes()


def _small_block(pairs: Mapping[bytes, bytes]) -> bytes:
    """Return a block of a few keys and values, of which only the first is a restart."""
    entries = b"".join(b"\0" + _varint(len(key)) + _varint(len(pairs[key])) + key + pairs[key] for key in sorted(pairs))
    return entries + bytes(4) + (1).to_bytes(4, "little")


def _handle(place: Iterable[int]) -> bytes:
    """Return the offset and the length of a block as other blocks and the footer name them."""
    return b"".join(map(_varint, place))


def _varint(number: int) -> bytes:
    return encode_varlen(np.array([number]), 7, 0x80).data.tobytes()


_SAME_IN_ALL = {
    b"rocksdb.block.based.table.index.type": bytes(4),
    b"rocksdb.block.based.table.prefix.filtering": b"0",
    b"rocksdb.block.based.table.whole.key.filtering": b"1",
    b"rocksdb.comparator": b"leveldb.BytewiseComparator",
    b"rocksdb.compression": b"Snappy",
    b"rocksdb.deleted.keys": b"\0",
    b"rocksdb.external_sst_file.global_seqno": bytes(8),
    b"rocksdb.external_sst_file.version": b"\2\0\0\0",
    b"rocksdb.filter.size": b"\0",
    b"rocksdb.fixed.key.length": b"\0",
    b"rocksdb.format.version": bytes([_FORMAT]),
    b"rocksdb.index.key.is.user.key": b"\1",
    b"rocksdb.index.value.is.delta.encoded": b"\1",
    b"rocksdb.merge.operands": b"\0",
    b"rocksdb.merge.operator": b"nullptr",
    b"rocksdb.num.range-deletions": b"\0",
    b"rocksdb.prefix.extractor.name": b"nullptr",
    b"rocksdb.property.collectors": b"[]",
    SEQUENCE_ZERO: b"",
}
"""The properties whose values depend on no entry. RocksDB ignores those that it does not know."""
