"""Finding the entries of many keys in SST files (tables). Only the blocks that may hold one of them are read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from statelib.backends.keys.order import byte_order
from statelib.backends.rocksdb.reading.table_scan import Placed, first_row_from, newest_entries
from statelib.formats.sst.sorted_table import Table
from statelib.formats.sst.table_blocks import BlockEntries, joined
from statelib.formats.sst.table_index import BlockColumns
from statelib.serializers.entries.rows import NO_ROWS, StateRows
from statelib.wire.ragged import Ragged, as_arrow, concat, from_list, offsets_of
from statelib.wire.ragged import blocks as runs

_AT_ONCE_BYTES = 16 * 1024 * 1024
"""The stored bytes of blocks that are decoded at once."""
Rows = npt.NDArray[np.int64]


class TableLookup:
    """The newest entries of given keys in the tables of one column family. The index of a table is read once, when
    first needed. ``mapped``: as for :meth:`~statelib.formats.sst.sorted_table.Table.read_apart`.

    All methods raise CorruptStateError (``corrupt-rocksdb``)."""

    def __init__(self, tables: Sequence[Placed], mapped: Callable[..., Iterable[Any]] = map) -> None:
        self._tables = [_Indexed(smallest, largest, table) for smallest, largest, table in tables]
        self._mapped = mapped

    def find(self, keys: Ragged) -> StateRows:
        """Return the entries of distinct keys, in ascending order. Keys without an entry are left out."""
        keys = keys.take(byte_order(keys))
        blocks = ((table, table.blocks_of(keys)) for table in self._tables)
        return self._matching(blocks, lambda all_keys: all_keys, keys)

    def find_prefixed(self, prefixes: Ragged, prefix_of: Callable[[Ragged], Ragged]) -> StateRows:
        """Return the entries whose key begins with one of distinct prefixes, in ascending order. ``prefix_of``: a
        function that returns the prefix of each key."""
        prefixes = prefixes.take(byte_order(prefixes))
        blocks = ((table, table.blocks_between(prefixes, _behind(prefixes))) for table in self._tables)
        return self._matching(blocks, prefix_of, prefixes)

    def _matching(
        self, blocks: Iterable[tuple["_Indexed", Rows]], part_of: Callable[[Ragged], Ragged], wanted: Ragged
    ) -> StateRows:
        """Return the newest entries in the blocks of each table for which ``part_of`` their key is wanted."""
        values = as_arrow(wanted)
        parts: list[BlockEntries] = []
        for table, numbers in blocks:
            for entries in table.read(numbers, self._mapped):
                is_wanted = pc.is_in(as_arrow(part_of(entries.keys)), value_set=values)
                parts.append(entries.take(np.flatnonzero(is_wanted.to_numpy(zero_copy_only=False))))
        return newest_entries(joined(parts), ordered=False) if parts else NO_ROWS


@dataclass
class _Indexed:
    """A table and the list of its blocks. ``smallest`` and ``largest``: the bounds of its keys."""

    smallest: bytes
    largest: bytes
    table: Table

    @cached_property
    def _blocks(self) -> BlockColumns:
        return self.table.block_columns()

    def blocks_of(self, keys: Ragged) -> Rows:
        """Return the numbers of the blocks that may hold one of ascending keys."""
        keys = keys.slice(first_row_from(keys, self.smallest), first_row_from(keys, self.largest + b"\0"))
        if not len(keys):
            return np.empty(0, np.int64)
        blocks = self._block_numbers(keys)
        return np.unique(blocks[blocks < len(self._blocks)])

    def blocks_between(self, first: Ragged, behind: Ragged) -> Rows:
        """Return the numbers of the blocks that may hold a key in one of the ranges from ``first`` to ``behind``
        (exclusive), both ascending."""
        overlaps = slice(first_row_from(behind, self.smallest + b"\0"), first_row_from(first, self.largest + b"\0"))
        rows = np.arange(len(first))[overlaps]
        if not len(rows):
            return np.empty(0, np.int64)
        begins, ends = self._block_numbers(first.take(rows)), self._block_numbers(behind.take(rows))
        inside = np.zeros(len(self._blocks) + 2, np.int64)
        np.add.at(inside, begins, 1)
        np.add.at(inside, ends + 1, -1)
        return np.flatnonzero(np.cumsum(inside)[: len(self._blocks)] > 0)

    def read(self, numbers: Rows, mapped: Callable[..., Iterable[Any]]) -> Iterator[BlockEntries]:
        """Yield the entries of blocks, some blocks at a time."""
        for start, stop in runs(offsets_of(self._blocks.lengths[numbers]), _AT_ONCE_BYTES):
            yield self.table.read_apart(self._blocks.take(numbers[start:stop]), mapped)

    def _block_numbers(self, keys: Ragged) -> Rows:
        """Return the number of the block that may hold each of ascending keys: the first whose last key is not below
        it."""
        order = byte_order(concat([keys, self._blocks.last]))  # of equal ones, the key comes first
        is_last = np.asarray(order >= len(keys), np.bool_)
        return np.asarray(np.cumsum(is_last)[~is_last], np.int64)


def _behind(prefixes: Ragged) -> Ragged:
    """Return, for each prefix, the least key that is larger than all keys that begin with it.

    A prefix begins with a key group, so that it has a byte below 0xff."""
    ends = prefixes.offsets[1:] - 1
    full = np.flatnonzero(prefixes.data[ends] == 0xFF)
    if not len(full):
        data = prefixes.data.copy()
        data[ends] += 1
        return Ragged(data, prefixes.offsets)
    cut = [prefix.rstrip(b"\xff") for prefix in prefixes.to_list()]
    return from_list([prefix[:-1] + bytes([prefix[-1] + 1]) for prefix in cut])
