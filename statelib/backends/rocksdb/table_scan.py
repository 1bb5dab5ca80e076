"""Reading a column family in key order from its tables themselves, in columns.

RocksDB hands out one entry a call. Where all of a family lies in tables that
:mod:`statelib.formats.sst.sorted_table` reads, and nothing of it in memory only, they are read and merged here: about
three times as fast. Everything else is left to :class:`~statelib.backends.rocksdb.scan.RocksDBScan`.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from rocksdict import Rdict

from statelib.backends.entries import SCAN_BYTES
from statelib.backends.key_order import byte_order, equal_neighbours
from statelib.backends.rocksdb.database import LIVE_BYTES, rocksdb_errors
from statelib.formats.sst.sorted_table import Block, Table, open_table
from statelib.formats.sst.table_blocks import BlockEntries, joined
from statelib.serializers.rows import StateRows
from statelib.wire.ragged import Ragged

CHUNK_BYTES = 512 * 1024
"""As they are stored, and never more than make SCAN_BYTES, that are read at once of all tables that are merged; of
each an eighth at least."""
_IN_MEMORY = ("rocksdb.num-entries-active-mem-table", "rocksdb.num-entries-imm-mem-tables")


Placed = tuple[bytes, bytes, Table]
"""Smallest and largest key, and the table that has both."""


def tables_of(db: Rdict, family: Rdict, name: str, directory: str) -> list[Placed] | None:
    """All tables of a family; None where it does not lie in tables alone, or one of them is not read in columns, or
    RocksDB replaces them at this moment."""
    with rocksdb_errors(directory, "listing its files"):
        if any(family.property_int_value(kind) for kind in _IN_MEMORY):
            return None
        live: list[dict[str, Any]] = db.live_files()
        size = family.property_int_value(LIVE_BYTES) or 0
    found: list[Placed] = []
    for file in live:
        path = Path(directory) / str(file["name"]).lstrip("/")
        try:
            table = open_table(_LocalFile(path).read, file["size"], str(path))
        except FileNotFoundError:
            return None
        if table is None or (table.family == name and not table.readable):
            return None
        if table.family == name:
            found.append((file["start_key"], file["end_key"], table))
            size -= file["size"]
    return None if size else found


class _LocalFile:
    """Closed with the last reference to it: RocksDB may remove a file, and whoever has it open still reads it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class TableScan:
    """A :class:`~statelib.backends.keyed.StateScan` of the newest entry of each key, without those deleted.

    ``first`` and ``stop`` bound the keys, [first, stop); ``release`` is called once, when the scan
    is closed or has come to its end. Raises CorruptStateError (``corrupt-rocksdb``)."""

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
    """The entries of one table, as far as they are read and not handed out. ``unread``: whether there are more.
    ``least``: no unread key is smaller."""

    def __init__(self, placed: Placed, first: bytes, stop: bytes | None, share: float) -> None:
        smallest, largest, self._table = placed
        self._first, self._stop, self._share = first, stop, share
        self.least = max(smallest, first)
        self.unread = first <= largest and (stop is None or smallest < stop)
        self._blocks: tuple[Block, ...] = ()
        self._at = self._end = 0
        self._held: list[BlockEntries] = []

    def load(self) -> None:
        """The next entries, or first where they lie: there may be many blocks, and many tables wait for their turn."""
        if not self._blocks:
            self._open()
        begin, left = self._at, self._share * min(CHUNK_BYTES, SCAN_BYTES / max(self._table.expansion, 1))
        while self._at < self._end and (left > 0 or self._at == begin):
            left -= self._blocks[self._at].length
            self._at += 1
        if self._at > begin:
            entries = self._table.read(self._blocks[begin : self._at])
            low = _first_from(entries.keys, self._first)
            high = len(entries) if self._stop is None else _first_from(entries.keys, self._stop)
            self._held.append(entries.slice(min(low, high), high))
            self.least = max(self.least, self._blocks[self._at - 1].last)
        self.unread = self._at < self._end
        if not self.unread:
            self._blocks = ()

    def _open(self) -> None:
        self._blocks = tuple(self._table.blocks())
        self._at = bisect_left(self._blocks, self._first, key=lambda block: block.last)
        self._end = len(self._blocks)
        if self._stop is not None:
            self._end = min(bisect_left(self._blocks, self._stop, key=lambda block: block.last) + 1, self._end)

    def take_below(self, bound: bytes | None) -> list[BlockEntries]:
        """The entries that are read, with keys below ``bound`` (None: all)."""
        taken, kept = [], []
        for entries in self._held:
            cut = len(entries) if bound is None else _first_from(entries.keys, bound)
            taken.append(entries.slice(0, cut))
            kept.append(entries.slice(cut, len(entries)))
        self._held = [entries for entries in kept if len(entries)]
        return [entries for entries in taken if len(entries)]


def _merged(runs: Sequence[_Run]) -> Iterator[StateRows]:
    """What lies below the least key that is still unread anywhere is complete."""
    while any(run.unread for run in runs):
        min((run for run in runs if run.unread), key=lambda run: run.least).load()
        bound = min((run.least for run in runs if run.unread), default=None)
        parts = [part for run in runs for part in run.take_below(bound)]
        if parts:
            rows = _newest(joined(parts), ordered=len(parts) == 1)
            if len(rows):
                yield rows


def _newest(entries: BlockEntries, *, ordered: bool) -> StateRows:
    """The newest entry of each key, unless it deletes the key."""
    if not ordered:
        entries = entries.take(byte_order(entries.keys))
    older = equal_neighbours(entries.keys)
    if len(older):
        again = np.zeros(len(entries), np.bool_)
        again[older + 1] = True
        key = np.cumsum(~again)
        order = np.lexsort((np.iinfo(np.uint64).max - entries.sequence, key))
        entries = entries.take(order[~again])
    if bool(entries.deleted.any()):
        entries = entries.take(np.flatnonzero(~entries.deleted))
    return StateRows(entries.keys, entries.values)


def _first_from(keys: Ragged, bound: bytes) -> int:
    """The first row of ascending keys that is not below ``bound``."""
    return bisect_left(range(len(keys)), bound, key=lambda row: _key(keys, row))


def _key(keys: Ragged, row: int) -> bytes:
    return keys.data[keys.offsets[row] : keys.offsets[row + 1]].tobytes()
