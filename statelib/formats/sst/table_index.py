"""The index of a RocksDB table: the list of its data blocks, read by columns.

Source: docs/spec/formats.md#rocksdb-tables; RocksDB's documentation of the block-based table.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError
from statelib.serializers.columns.cursors import read_varlen
from statelib.wire.ragged import Ragged, from_list, gather

TRAILER_BYTES = 5
"""The size in bytes of the trailer of each block: the kind of compression, and a checksum."""


class Block(NamedTuple):
    """The position of one data block.

    ``offset`` and ``length``: its bytes, without the trailer. ``last``: a key that is not below the block's last user
    key, and below the first user key of the next block.
    """

    last: bytes
    offset: int
    length: int


@dataclass(frozen=True, eq=False)
class BlockColumns:
    """The positions of data blocks as columns, in key order: the fields of :class:`Block`, one element per block."""

    last: Ragged
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.last)

    def take(self, rows: npt.NDArray[np.int64]) -> list[Block]:
        """Return the blocks with these numbers."""
        columns = self.last.take(rows).to_list(), self.offsets[rows].tolist(), self.lengths[rows].tolist()
        return list(map(Block, *columns))


@dataclass(frozen=True)
class TableIndex:
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

    def parts(self, first: bytes = b"", stop: bytes | None = None) -> Iterator[BlockColumns]:
        """Yield the data blocks that may have keys in [first, stop), in key order; all blocks if the index cannot be
        searched."""
        return self._below(self.offset, self.length, self.levels, first, stop)

    def _below(self, offset: int, length: int, levels: int, first: bytes, stop: bytes | None) -> Iterator[BlockColumns]:
        """Yield the data blocks of the index block at ``offset``, which has ``levels`` index levels below it."""
        entries = self._entries(self.block(offset, length), first, stop)
        if not levels:
            yield entries
            return
        for child_offset, child_length in zip(entries.offsets.tolist(), entries.lengths.tolist(), strict=True):
            yield from self._below(child_offset, child_length, levels - 1, first, stop)

    def _entries(self, content: bytes, first: bytes, stop: bytes | None) -> BlockColumns:
        """Return the blocks that an index block names, data blocks or those of the level below."""
        whole = _whole_entries(content, first, stop, self.trailing) if self.deltas else None
        if whole is not None:
            return whole
        entries = list(_entries_with_deltas(content) if self.deltas else _entries_without_deltas(content))
        numbers = np.array([entry[1:] for entry in entries], np.int64).reshape(-1, 2)
        keys = [key[: len(key) - self.trailing] for key, _, _ in entries]
        return BlockColumns(from_list(keys), numbers[:, 0], numbers[:, 1])


def _whole_entries(content: bytes, first: bytes, stop: bytes | None, trailing: int) -> BlockColumns | None:
    """Return the blocks that may have keys in [first, stop), read by columns; None if an entry depends on the entry
    before it."""
    data, end = np.frombuffer(content, np.uint8), _end_of_entries(content)
    if end < 0:
        return None
    bounds = np.append(np.frombuffer(content, "<u4", -1, end)[:-1].astype(np.int64), end)

    def user_key(row: int) -> bytes:
        _, at = read_varint(content, int(bounds[row]))
        size, at = read_varint(content, at)
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
        keys = gather(data, key, unshared - trailing)
    except (CorruptStateError, IndexError, ValueError):
        return None
    if shared.any() or bool((at != stops).any()):
        return None
    begin = int(len(keys) > 0 and keys.slice(0, 1).to_list()[0] < first)
    return BlockColumns(keys.slice(begin, len(keys)), offsets[begin:], lengths[begin:])


def _entries_without_deltas(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (key, offset, length) per block of an older version of the format."""
    for key, value in key_value_pairs(content):
        offset, at = read_varint(value, 0)
        yield key, offset, read_varint(value, at)[0]


def _entries_with_deltas(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (key, offset, length) per block, entry by entry."""
    at, end, key, offset, size = 0, _end_of_entries(content), b"", 0, 0
    while at < end:
        shared, at = read_varint(content, at)
        unshared, at = read_varint(content, at)
        key = key[:shared] + content[at : at + unshared]
        at += unshared
        if shared:
            offset += size + TRAILER_BYTES
            zigzag, at = read_varint(content, at)
            size += (zigzag >> 1) ^ -(zigzag & 1)
        else:
            offset, at = read_varint(content, at)
            size, at = read_varint(content, at)
        yield key, offset, size


def key_value_pairs(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a small block."""
    at, end, key = 0, _end_of_entries(content), b""
    while at < end:
        shared, at = read_varint(content, at)
        unshared, at = read_varint(content, at)
        size, at = read_varint(content, at)
        key = key[:shared] + content[at : at + unshared]
        at += unshared
        yield key, content[at : at + size]
        at += size


def _end_of_entries(content: bytes) -> int:
    """Return the offset in a block at which its entries end and its restarts begin."""
    return len(content) - 4 - 4 * int.from_bytes(content[-4:], "little")


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
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
