"""Reading a column family in key order directly from its SST files (tables), in columns.

RocksDB returns one entry per call. If all entries of a family are in tables that
:mod:`statelib.formats.sst.sorted_table` can read, and none only in memory, the tables are read and merged here, which
is about three times as fast. Otherwise :class:`~statelib.backends.rocksdb.reading.scan.RocksDBScan` reads the family.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from rocksdict import Rdict

from statelib.backends.entries import SCAN_BYTES
from statelib.backends.keys.order import byte_order, equal_neighbours
from statelib.backends.rocksdb.database import LIVE_BYTES, rocksdb_errors
from statelib.formats.sst.sorted_table import Table, open_table
from statelib.formats.sst.table_blocks import BlockEntries, joined
from statelib.formats.sst.table_index import Block
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import Ragged

CHUNK_BYTES = 512 * 1024
"""The stored bytes that are read at once from all merged tables together, an eighth or more from each. They are fewer
if they would decompress to more than SCAN_BYTES."""
_IN_MEMORY = ("rocksdb.num-entries-active-mem-table", "rocksdb.num-entries-imm-mem-tables")


Placed = tuple[bytes, bytes, Table]
"""A table with its bounds: (smallest key, largest key, table)."""


def tables_of(
    db: Rdict, family: Rdict, name: str, directory: str, families: MutableMapping[str, str]
) -> list[Placed] | None:
    """Return all tables of a column family with their bounds. Return None if some entries are only in memory, or a
    table cannot be read in columns, or RocksDB is just replacing tables.

    ``families``: the column families of tables of the database by their file names. The family of a table is stored
    only in the table, so the families of tables that are opened here are added, and tables of another family are not
    opened again. RocksDB uses no file name twice."""
    with rocksdb_errors(directory, "listing its files"):
        if any(family.property_int_value(kind) for kind in _IN_MEMORY):
            return None
        live: list[dict[str, Any]] = db.live_files()
        size = family.property_int_value(LIVE_BYTES) or 0
    tables: list[Placed] = []
    for file in live:
        file_name = str(file["name"]).lstrip("/")
        if families.get(file_name, name) != name:
            continue
        path = Path(directory) / file_name
        try:
            table = open_table(_LocalFile(path).read, file["size"], str(path))
        except FileNotFoundError:
            return None
        if table is None or (table.family == name and not table.readable):
            return None
        families[file_name] = table.family
        if table.family == name:
            tables.append((file["start_key"], file["end_key"], table))
            size -= file["size"]
    return None if size else tables


class _LocalFile:
    """A local file that stays open until the last reference to this object is gone. It can be read even after RocksDB
    has removed the file."""

    _descriptor = -1  # of the class: a signal may come before the constructor, and then only __del__ runs

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class TableScan:
    """A :class:`~statelib.backends.keyed.StateScan` of the newest entry of each key, without deleted keys.

    The keys are in [first, stop). ``release`` is called once, when the scan is closed or has reached its
    end. Raises CorruptStateError (``corrupt-rocksdb``)."""

    def __init__(
        self,
        tables: Sequence[Placed],
        release: Callable[[], None] = lambda: None,
        first: bytes = b"",
        stop: bytes | None = None,
    ) -> None:
        share = 1 / min(max(len(tables), 1), 8)
        runs = [_Run(placed, first, stop, share) for placed in tables]
        self._merged: Iterator[StateRows] | None = _merged([run for run in runs if run.unread])
        self._release = release

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StateRows:
        rows = None if self._merged is None else next(self._merged, None)
        if rows is None:
            self.close()
            raise StopIteration
        return rows

    def close(self) -> None:
        if self._merged is not None:
            self._merged = None
            self._release()


class _Run:
    """A table that is being read: the entries that are loaded and not yet returned. ``unread``: whether the table has
    entries that are not loaded. ``least``: no key that is not loaded is smaller."""

    def __init__(self, placed: Placed, first: bytes, stop: bytes | None, share: float) -> None:
        smallest, largest, self._table = placed
        self._first, self._stop, self._share = first, stop, share
        self.least = max(smallest, first)
        self.unread = first <= largest and (stop is None or smallest < stop)
        self._blocks: tuple[Block, ...] = ()
        self._at = self._end = 0
        self._held: list[BlockEntries] = []

    def load(self) -> None:
        """Load the next entries. The list of blocks is read at the first call only, because it may be long, and many
        tables may be waiting."""
        if not self._blocks:
            self._open()
        begin, left = self._at, self._share * min(CHUNK_BYTES, SCAN_BYTES / max(self._table.expansion, 1))
        while self._at < self._end and (left > 0 or self._at == begin):
            left -= self._blocks[self._at].length
            self._at += 1
        if self._at > begin:
            entries = self._table.read(self._blocks[begin : self._at])
            low = first_row_from(entries.keys, self._first)
            high = len(entries) if self._stop is None else first_row_from(entries.keys, self._stop)
            self._held.append(entries.slice(min(low, high), high))
            last = self._blocks[self._at - 1].last
            self.least = max(self.least, last + b"\0" if self._table.distinct else last)
        self.unread = self._at < self._end
        if not self.unread:
            self._blocks = ()

    def _open(self) -> None:
        self._blocks = tuple(self._table.blocks(self._first, self._stop))
        self._at = bisect_left(self._blocks, self._first, key=lambda block: block.last)
        self._end = len(self._blocks)
        if self._stop is not None:
            self._end = min(bisect_left(self._blocks, self._stop, key=lambda block: block.last) + 1, self._end)

    def take_below(self, bound: bytes | None) -> list[BlockEntries]:
        """Return and remove the loaded entries with keys below ``bound`` (None: all loaded entries)."""
        taken, remaining = [], []
        for entries in self._held:
            cut = len(entries) if bound is None else first_row_from(entries.keys, bound)
            taken.append(entries.slice(0, cut))
            remaining.append(entries.slice(cut, len(entries)))
        self._held = [entries for entries in remaining if len(entries)]
        return [entries for entries in taken if len(entries)]


def _merged(runs: Sequence[_Run]) -> Iterator[StateRows]:
    """Yield the entries of all tables in key order. The entries below the least key that is not loaded in any table are
    complete, so these are merged and yielded."""
    while any(run.unread for run in runs):
        min((run for run in runs if run.unread), key=lambda run: run.least).load()
        bound = min((run.least for run in runs if run.unread), default=None)
        parts = [taken for run in runs if (taken := run.take_below(bound))]
        if parts:
            rows = newest_entries(joined([part for taken in parts for part in taken]), ordered=len(parts) == 1)
            if len(rows):
                yield rows


def newest_entries(entries: BlockEntries, *, ordered: bool) -> StateRows:
    """Return the newest entry of each key, without the keys whose newest entry is a deletion."""
    if not ordered:
        entries = entries.take(byte_order(entries.keys))
    older = equal_neighbours(entries.keys)
    if len(older):
        first = np.ones(len(entries), np.bool_)
        first[older + 1] = False
        starts = np.flatnonzero(first)
        newest = np.maximum.reduceat(entries.sequence, starts)
        entries = entries.take(
            np.flatnonzero(entries.sequence == np.repeat(newest, np.diff(starts, append=len(first))))
        )
    if bool(entries.deleted.any()):
        entries = entries.take(np.flatnonzero(~entries.deleted))
    return StateRows(entries.keys, entries.values)


def first_row_from(keys: Ragged, bound: bytes) -> int:
    """Return the first row of ascending keys whose key is not below ``bound``."""
    return bisect_left(range(len(keys)), bound, key=lambda row: _key(keys, row))


def _key(keys: Ragged, row: int) -> bytes:
    return keys.data[keys.offsets[row] : keys.offsets[row + 1]].tobytes()
