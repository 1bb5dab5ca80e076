"""Reading the entries of a handle of any format. Restore, export, diff and verify use it.

Source: docs/spec/requirements.md R25 to R29 (the handle's type says which reader reads it).
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from statelib.backends.rocksdb.reading.stored import scan_stored
from statelib.backends.rocksdb.reading.table_scan import TableScan
from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.formats.canonical.reading import iter_canonical, read_header
from statelib.formats.heap.reading import iter_heap
from statelib.formats.keyed.header import KeyedHeader, decode_keyed_header
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    materialized_parts,
    stream_handles,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import StateKind
from statelib.restore.changelog.change_log import ChangeLog, read_change_log
from statelib.restore.plan import RestoreSource
from statelib.restore.schemas.matching import check_same_schema
from statelib.restore.stored.proof import ProvenStream, damage_named
from statelib.restore.stored.rocksdb_files import materialise, naming_stored_files
from statelib.restore.stored.tables import StoredTables, stored_tables
from statelib.serializers.entries.rows import StateRows
from statelib.storage.ports.views import StateReader

WINDOW_BYTES = 32 * 1024 * 1024
"""The default size of a window: the stored bytes of the key groups that are read together."""


def windows_of(
    handle: KeyedStateHandle, window_bytes: int = WINDOW_BYTES, key_groups: Sequence[KeyGroupRange] | None = None
) -> tuple[KeyGroupRange, ...]:
    """Return the key groups of a handle, split into ranges of about ``window_bytes`` stored bytes each. A range has at
    least one key group. ``key_groups``: the ranges that are split, each within one handle; None for all."""
    own = handle.key_group_range
    size_bytes = sum(stream.size_bytes for stream in stream_handles(handle))
    windows: list[KeyGroupRange] = []
    for part in [own] if key_groups is None else [part for part in key_groups if len(part) and part.start in own]:
        share = size_bytes * len(part) // max(len(own), 1)
        number = max(min(len(part), -(-share // window_bytes)), 1)
        bounds = [part.start + len(part) * place // number for place in range(number + 1)]
        windows += (KeyGroupRange(start, stop - 1) for start, stop in pairwise(bounds))
    return tuple(windows)


def iter_entries(
    source: RestoreSource,
    key_group_range: KeyGroupRange | None = None,
    scratch_directory: str | None = None,
    *,
    only: int | None = None,
    stream: ProvenStream | None = None,
) -> Iterator[tuple[int, StateRows]]:
    """Return an iterator of (index in ``source.schema.states``, entries) over the source's key groups.

    ``key_group_range`` limits the key groups, ``only`` the states to the one with that index. ``stream`` is the
    canonical or heap stream if some of its key groups have been read before. Entries are not compared with recorded
    statistics. A RocksDB handle is copied to ``scratch_directory``, which must not exist and is removed at the end.

    Raise InvalidRequestError (``state-schema-changed`` if the header of the stream contradicts the source's schema,
    ``no-scratch-directory``), UnsupportedError (``unsupported-handle``)."""
    owned = source.handle.key_group_range
    wanted = owned if key_group_range is None else owned.intersection(key_group_range)
    match source.handle:
        case KeyGroupsSavepointStateHandle() as handle:
            return _canonical(source, handle, wanted, only, stream or ProvenStream(source.reader, handle.stream))
        case KeyGroupsStateHandle() as handle:
            return _heap(source, handle, wanted, only, stream or ProvenStream(source.reader, handle.stream))
        case IncrementalRemoteKeyedStateHandle():
            if scratch_directory is None:
                raise InvalidRequestError(
                    "a RocksDB snapshot can be read only with a scratch directory to copy it to",
                    kind="no-scratch-directory",
                    hint="take a canonical savepoint to change the state backend",
                )
            return _at_once(source, wanted, scratch_directory, only)
        case ChangelogStateBackendHandleImpl():
            return _at_once(source, wanted, scratch_directory, only)
        case other:
            raise UnsupportedError(
                f"keyed state in a {type(other).__name__}: expected a canonical savepoint, or a native snapshot of"
                " the heap or of RocksDB",
                kind="unsupported-handle",
                hint="take a canonical savepoint with Flink",
            )


def _canonical(
    source: RestoreSource,
    handle: KeyGroupsSavepointStateHandle,
    wanted: KeyGroupRange,
    only: int | None,
    read_range: ProvenStream,
) -> Iterator[tuple[int, StateRows]]:
    with damage_named(source.reader, [handle.stream]):
        header = read_header(read_range, handle, source.schema.max_parallelism)
        order = check_same_schema(source.schema, header.schema, partial=source.partial)
        if only is None or only in order:
            for index, rows in iter_canonical(read_range, handle, header, wanted, only=_stored(order, only)):
                yield order[index], rows


def _heap(
    source: RestoreSource,
    handle: KeyGroupsStateHandle,
    wanted: KeyGroupRange,
    only: int | None,
    read_range: ProvenStream,
) -> Iterator[tuple[int, StateRows]]:
    with damage_named(source.reader, [handle.stream]):
        header = read_header(read_range, handle, source.schema.max_parallelism, "heap stream")
        order = check_same_schema(source.schema, header.schema, partial=source.partial)
        if only is None or only in order:
            for index, rows in iter_heap(read_range, handle, header, wanted, only=_stored(order, only)):
                yield order[index], rows


def _at_once(
    source: RestoreSource, wanted: KeyGroupRange, scratch_directory: str | None, only: int | None
) -> Iterator[tuple[int, StateRows]]:
    """Yield the entries of a handle of several files in one reading."""
    reader = EntryReader(source, scratch_directory, wanted, only=only)
    try:
        yield from reader.read([wanted])
    finally:
        reader.close()


def _scan(
    header: KeyedHeader, order: Sequence[int], database: Path, wanted: KeyGroupRange, only: int | None
) -> Iterator[tuple[int, StateRows]]:
    scanned = [index for index in range(len(header.schema.states)) if only in (None, index)]
    names = [header.schema.states[index].name for index in scanned]
    timers = {state.name for state in header.schema.states if state.kind is StateKind.TIMERS}
    for number, rows in scan_stored(str(database), names, wanted, header.schema.max_parallelism, timers):
        yield order[scanned[number]], rows


def _stored(order: Sequence[int], only: int | None) -> int | None:
    """Return the index in the stream's header of the state with index ``only`` in the source's schema."""
    return None if only is None else order.index(only)


class EntryReader:
    """A reader of a handle's entries in several parts. RocksDB files are copied once, and a log is read once.

    ``scratch_directory`` must not exist; :meth:`close` removes it. ``key_groups`` are all the key groups that will be
    read. ``only`` is the index of the one state that is read, if not all are. ``in_place``: the tables of RocksDB are
    read in ranges from the storage, if they can be read without RocksDB; this pays for a few key groups."""

    def __init__(
        self,
        source: RestoreSource,
        scratch_directory: str | None,
        key_groups: KeyGroupRange | None = None,
        *,
        only: int | None = None,
        in_place: bool = False,
    ) -> None:
        self._source = source
        self._only = only
        self._in_place = in_place
        self._tables: StoredTables | None = None
        self._range = source.handle.key_group_range if key_groups is None else key_groups
        self._scratch = scratch_directory
        self._header: KeyedHeader | None = None
        self._log: ChangeLog | None = None
        self._stream: ProvenStream | None = None
        if isinstance(source.handle, KeyGroupsSavepointStateHandle | KeyGroupsStateHandle):
            self._stream = ProvenStream(source.reader, source.handle.stream)
        materialized = materialized_parts(source.handle)
        self._below = [
            EntryReader(
                replace(source, handle=part),
                scratch_directory and f"{scratch_directory}/{number}",
                only=only,
                in_place=in_place,
            )
            for number, part in enumerate(materialized)
            if part is not source.handle
        ]

    def read(self, runs: Sequence[KeyGroupRange]) -> Iterator[tuple[int, StateRows]]:
        """Yield (index of the state, entries) of the key groups in ``runs``, which are ascending and not empty.

        For a RocksDB handle or a log, the key groups between the runs are included, because the scan reads them
        anyway. Raise what :func:`iter_entries` raises."""
        handle = self._source.handle
        wanted = handle.key_group_range.intersection(KeyGroupRange(runs[0].start, runs[-1].end))
        if isinstance(handle, ChangelogStateBackendHandleImpl):
            yield from self._read_logged(handle, runs, wanted)
        elif isinstance(handle, IncrementalRemoteKeyedStateHandle) and self._scratch is not None:
            yield from self._read_copied(handle, wanted, Path(self._scratch))
        else:
            for run in runs:
                yield from iter_entries(self._source, run, self._scratch, only=self._only, stream=self._stream)

    def _read_logged(
        self, handle: ChangelogStateBackendHandleImpl, runs: Sequence[KeyGroupRange], wanted: KeyGroupRange
    ) -> Iterator[tuple[int, StateRows]]:
        if self._log is None:
            self._log = read_change_log(self._source, handle, self._range)
        overlay = self._log.over(wanted)
        for below in self._below:
            for index, rows in below.read(runs):
                left = overlay.covered(index, rows)
                if len(left):
                    yield index, left
        yield from ((index, rows) for index, rows in overlay.rest() if self._only in (None, index))

    def _read_copied(
        self, handle: IncrementalRemoteKeyedStateHandle, wanted: KeyGroupRange, scratch: Path
    ) -> Iterator[tuple[int, StateRows]]:
        reader, size = self._source.reader, self._source.schema.max_parallelism
        self._header = header = self._header or rocksdb_header(handle, reader, size)
        order = check_same_schema(self._source.schema, header.schema, partial=self._source.partial)
        if self._only is not None and self._only not in order:
            return
        scans = self._scans_in_place(handle, header, wanted)
        if scans is None:
            self._in_place = False
            if not scratch.exists():
                materialise(handle, reader, scratch, with_options=True)
            with naming_stored_files(handle, scratch):
                yield from _scan(header, order, scratch, wanted, _stored(order, self._only))
            return
        with damage_named(reader, stream_handles(handle)):
            for number, scan in scans:
                yield from ((order[number], rows) for rows in scan)

    def _scans_in_place(
        self, handle: IncrementalRemoteKeyedStateHandle, header: KeyedHeader, wanted: KeyGroupRange
    ) -> list[tuple[int, TableScan]] | None:
        """Return a scan of each state with its index in the header; None if the files must be copied for RocksDB."""
        if not self._in_place:
            return None
        self._tables = self._tables or stored_tables(handle, self._source.reader)
        size, scans = self._source.schema.max_parallelism, list[tuple[int, TableScan]]()
        for number, state in enumerate(header.schema.states):
            scan = self._tables.scan(state.name, wanted, size)
            if scan is None:
                return None
            scans.append((number, scan))
        return scans

    def is_proved(self) -> bool:
        """Return whether all that was read lies in files that were compared with their checksums as a whole.

        Those of RocksDB are compared while they are copied, and those of a log while they are read."""
        if self._stream is not None:
            return self._stream.is_proved
        return not self._in_place and all(below.is_proved() for below in self._below)

    def close(self) -> None:
        """Remove the scratch directory."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


def read_windows(
    source: RestoreSource, windows: Sequence[KeyGroupRange], scratch_directory: str, only: int | None = None
) -> Iterator[tuple[int, StateRows]]:
    """Yield (index of the state, entries) of the windows, one after the other. A part of a handle is read in place. The
    other arguments and errors are those of :class:`EntryReader`."""
    in_place = sum(map(len, windows)) < len(source.handle.key_group_range)
    reader = EntryReader(source, scratch_directory, only=only, in_place=in_place)
    try:
        for window in windows:
            yield from reader.read([window])
    finally:
        reader.close()


def rocksdb_header(handle: IncrementalRemoteKeyedStateHandle, reader: StateReader, max_parallelism: int) -> KeyedHeader:
    """Return the header in the meta stream of a RocksDB handle."""
    return decode_keyed_header(reader.read(handle.meta), max_parallelism, "RocksDB meta stream")
