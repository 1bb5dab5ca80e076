"""The tables of a stored RocksDB snapshot, read where they are: in ranges, without a copy and without RocksDB.

Source: docs/spec/formats.md#rocksdb-tables, #rocksdb-manifest.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from statelib.backends.rocksdb.database import FILE_NAME, IMMUTABLE_SUFFIX
from statelib.backends.rocksdb.reading.stored import key_group_bounds
from statelib.backends.rocksdb.reading.table_lookup import TableLookup
from statelib.backends.rocksdb.reading.table_scan import Placed, TableScan
from statelib.errors import CorruptStateError
from statelib.formats.sst.live_tables import LiveTable, live_tables
from statelib.formats.sst.sorted_table import ReadAt, Table, open_table
from statelib.model.amounts import number_of
from statelib.model.handles import IncrementalRemoteKeyedStateHandle, StreamStateHandle
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.restore.stored.rocksdb_files import place_of, rocksdb_files
from statelib.serializers.entries.rows import key_groups_of
from statelib.storage.ports.views import StateReader
from statelib.wire.ragged import Ragged

_READ_BYTES = 512 * 1024
"""The stored bytes that are decoded at once while a table is counted."""
_END_BYTES = 32 * 1024
"""The bytes at the end of a table that are read at once: its footer, its properties and, if it is small, its index."""


@dataclass(frozen=True)
class StoredTables:
    """The tables of one handle, as its MANIFEST names them. ``is_alone``: all entries are in tables, none in a log."""

    _reader: StateReader
    _files: dict[str, StreamStateHandle]
    _live: tuple[LiveTable, ...]
    is_alone: bool

    def scan(self, state: str, key_groups: KeyGroupRange, max_parallelism: int) -> TableScan | None:
        """Return the entries of a state in some key groups; None if only RocksDB can read one of its tables."""
        first, stop = key_group_bounds(key_groups, max_parallelism)
        placed = self._tables_of(state, first, stop, self._open)
        return None if placed is None else TableScan(placed, first=first, stop=stop)

    def lookup(self, state: str, mapped: Callable[..., Iterable[Any]] = map) -> TableLookup | None:
        """Return the lookup of single entries of a state; None if only RocksDB can read one of its tables. ``mapped``:
        as for :meth:`~statelib.formats.sst.sorted_table.Table.read_apart`."""
        placed = self._tables_of(state, b"", None, self._open_by_its_end)
        return None if placed is None else TableLookup(placed, mapped)

    def _tables_of(
        self, state: str, first: bytes, stop: bytes | None, opened: Callable[[str], Table | None]
    ) -> list[Placed] | None:
        """Return the tables of a state with keys in [first, stop); None if only RocksDB can read the entries."""
        placed: list[Placed] = []
        for live in self._live:
            if live.family != state or live.largest < first or (stop is not None and live.smallest >= stop):
                continue
            table = opened(live.file)
            if table is None:
                return None
            placed.append((live.smallest, live.largest, table))
        return placed if self.is_alone else None

    def key_groups_in(self, file: str, max_parallelism: int) -> set[int] | None:
        """Return the key groups of the entries in a table, which is read whole; None if only RocksDB can read it.

        Raises CorruptStateError (``corrupt-rocksdb``) unless it has as many entries as it records."""
        table = self._open(file)
        if table is None:
            return None
        groups, entries = set[int](), 0
        for keys in _keys(table):
            entries += len(keys)
            groups |= {int(group) for group in np.unique(key_groups_of(keys, prefix_width(max_parallelism)))}
        if entries != table.entries:
            raise CorruptStateError(
                f"RocksDB's table {table.name}: expected {number_of(table.entries, 'entry')}, read {entries}",
                kind="corrupt-rocksdb",
            )
        return groups

    def _open(self, file: str) -> Table | None:
        stream = self._files[file]
        return self._readable(file, partial(_range, self._reader, stream))

    def _open_by_its_end(self, file: str) -> Table | None:
        """Open a table whose last bytes, where its description is, are read at once."""
        stream = self._files[file]
        begin = max(stream.size_bytes - _END_BYTES, 0)
        end = _range(self._reader, stream, begin, _END_BYTES)

        def read(offset: int, length: int) -> bytes:
            if offset >= begin:
                return end[offset - begin : offset - begin + length]
            return _range(self._reader, stream, offset, length)

        return self._readable(file, read)

    def _readable(self, file: str, read: ReadAt) -> Table | None:
        stream = self._files[file]
        table = open_table(read, stream.size_bytes, f"{file} in {place_of(stream)}")
        return table if table is not None and table.readable else None


def stored_tables(handle: IncrementalRemoteKeyedStateHandle, reader: StateReader) -> StoredTables:
    """Return the tables of a RocksDB handle. Only the small files CURRENT and MANIFEST are read.

    Raises CorruptStateError: ``rocksdb-files-mismatch`` unless the MANIFEST names exactly the tables of the handle,
    with their sizes, ``corrupt-rocksdb``, and what the reader raises."""
    files = dict(rocksdb_files(handle))
    live = live_tables(*_manifest(files, reader))
    stored = {name: stream.size_bytes for name, stream in files.items() if name.endswith(IMMUTABLE_SUFFIX)}
    named = {table.file: table.size_bytes for table in live}
    if named != stored:
        raise CorruptStateError(
            f"RocksDB handle of checkpoint {handle.checkpoint_id}: its MANIFEST names the tables"
            f" {_text(named)}, the handle has {_text(stored)}",
            kind="rocksdb-files-mismatch",
        )
    is_alone = not any(name.endswith(".log") and stream.size_bytes for name, stream in files.items())
    return StoredTables(reader, files, tuple(live), is_alone)


def _manifest(files: dict[str, StreamStateHandle], reader: StateReader) -> tuple[memoryview, str]:
    """Return the bytes and the name of the MANIFEST that CURRENT names."""
    current = bytes(reader.read(files["CURRENT"])) if "CURRENT" in files else b""
    name = current.decode("ascii", "replace").removesuffix("\n")
    if name not in files or not FILE_NAME.fullmatch(name):
        raise CorruptStateError(
            f"RocksDB handle: its file CURRENT names the MANIFEST {name[:100]!r}, which the handle does not have",
            kind="rocksdb-files-mismatch",
        )
    return reader.read(files[name]), name


def _text(tables: dict[str, int]) -> str:
    names = sorted(tables)
    return f"{names[:20]}{' and more' if len(names) > 20 else ''} ({sum(tables.values())} bytes)"


def _keys(table: Table) -> Iterator[Ragged]:
    """Yield the keys of all entries of a table, deletions included."""
    blocks = tuple(table.blocks())
    at = 0
    while at < len(blocks):
        begin, left = at, _READ_BYTES
        while at < len(blocks) and (left > 0 or at == begin):
            left -= blocks[at].length
            at += 1
        yield table.read(blocks[begin:at]).keys


def _range(reader: StateReader, stream: StreamStateHandle, offset: int, length: int) -> bytes:
    """Return a range of a stream; fewer bytes if it ends first."""
    stop = min(offset + length, stream.size_bytes)
    return bytes(reader.read_range(stream, min(offset, stop), stop))
