"""The entries behind a handle, whatever its format: what restore, export, diff and verify read.

Source: requirements R25 to R29 (the handle's type says which reader reads it).
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from statelib.backends.rocksdb.stored import scan_stored
from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.formats.canonical import iter_canonical, read_header
from statelib.formats.heap_stream import iter_heap
from statelib.formats.keyed_header import KeyedHeader, decode_keyed_header
from statelib.model.handles import (
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.restore.plan import RestoreSource
from statelib.restore.rocksdb_files import materialise
from statelib.restore.schemas import check_same_schema
from statelib.serializers.rows import StateRows
from statelib.storage.views import StateReader


def iter_entries(
    source: RestoreSource, key_group_range: KeyGroupRange | None = None, scratch_directory: str | None = None
) -> Iterator[tuple[int, StateRows]]:
    """(index in ``source.schema.states``, entries) of the key groups that the source holds, all or those wanted.

    Nothing is compared with recorded statistics here. A RocksDB handle is copied to
    ``scratch_directory``, which must not exist and is removed at the end. Raises
    InvalidRequestError (``state-schema-changed``) when the stream's own header does not agree with
    the source's schema; UnsupportedError (``unsupported-handle``, ``timer-state``).
    """
    owned = source.handle.key_group_range
    wanted = owned if key_group_range is None else owned.intersection(key_group_range)
    match source.handle:
        case KeyGroupsSavepointStateHandle() as handle:
            return _canonical(source, handle, wanted)
        case KeyGroupsStateHandle() as handle:
            return _heap(source, handle, wanted)
        case IncrementalRemoteKeyedStateHandle() as handle:
            if scratch_directory is None:
                raise InvalidRequestError(
                    "a RocksDB snapshot can be read only with a scratch directory to copy it to",
                    kind="no-scratch-directory",
                    hint="take a canonical savepoint to change the state backend",
                )
            return _rocksdb(source, handle, wanted, Path(scratch_directory))
        case other:
            raise UnsupportedError(
                f"keyed state in a {type(other).__name__}: expected a canonical savepoint, or a native snapshot of"
                " the heap or of RocksDB",
                kind="unsupported-handle",
                hint="take a canonical savepoint with Flink",
            )


def _canonical(
    source: RestoreSource, handle: KeyGroupsSavepointStateHandle, wanted: KeyGroupRange
) -> Iterator[tuple[int, StateRows]]:
    def read_range(start: int, stop: int) -> memoryview:
        return source.reader.read_range(handle.stream, start, stop)

    header = read_header(read_range, handle, source.schema.max_parallelism)
    order = check_same_schema(source.schema, header.schema)
    for index, rows in iter_canonical(read_range, handle, header, wanted):
        yield order[index], rows


def _heap(
    source: RestoreSource, handle: KeyGroupsStateHandle, wanted: KeyGroupRange
) -> Iterator[tuple[int, StateRows]]:
    def read_range(start: int, stop: int) -> memoryview:
        return source.reader.read_range(handle.stream, start, stop)

    header = read_header(read_range, handle, source.schema.max_parallelism, "heap stream")
    order = check_same_schema(source.schema, header.schema)
    for index, rows in iter_heap(read_range, handle, header, wanted):
        yield order[index], rows


def _rocksdb(
    source: RestoreSource, handle: IncrementalRemoteKeyedStateHandle, wanted: KeyGroupRange, scratch: Path
) -> Iterator[tuple[int, StateRows]]:
    header = rocksdb_header(handle, source.reader, source.schema.max_parallelism)
    order = check_same_schema(source.schema, header.schema)
    try:
        materialise(handle, source.reader, scratch, with_options=True)
        yield from _scan(header, order, scratch, wanted)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _scan(
    header: KeyedHeader, order: Sequence[int], database: Path, wanted: KeyGroupRange
) -> Iterator[tuple[int, StateRows]]:
    names = [state.name for state in header.states]
    timers = {state.name for state in header.states if state.descriptor is None}
    for number, rows in scan_stored(str(database), names, wanted, header.schema.max_parallelism, timers):
        index = header.schema_index[number]
        if index is None:
            raise UnsupportedError(f"timers in state {names[number]!r}", kind="timer-state")
        yield order[index], rows


class EntryReader:
    """The entries behind a handle, read piece by piece: what must be copied for that is copied once.

    ``scratch_directory`` must not exist; :meth:`close` removes it."""

    def __init__(self, source: RestoreSource, scratch_directory: str) -> None:
        self._source = source
        self._scratch = Path(scratch_directory)
        self._header: KeyedHeader | None = None

    def read(self, runs: Sequence[KeyGroupRange]) -> Iterator[tuple[int, StateRows]]:
        """As :func:`iter_entries`, of the key groups in ``runs`` (ascending, one or more); a RocksDB handle
        also gives those between them, because a scan passes them by anyway."""
        handle = self._source.handle
        if isinstance(handle, IncrementalRemoteKeyedStateHandle):
            wanted = handle.key_group_range.intersection(KeyGroupRange(runs[0].start, runs[-1].end))
            yield from self._copied(handle, wanted)
            return
        for run in runs:
            yield from iter_entries(self._source, run, str(self._scratch))

    def _copied(
        self, handle: IncrementalRemoteKeyedStateHandle, wanted: KeyGroupRange
    ) -> Iterator[tuple[int, StateRows]]:
        if self._header is None:
            self._header = rocksdb_header(handle, self._source.reader, self._source.schema.max_parallelism)
            materialise(handle, self._source.reader, self._scratch, with_options=True)
        order = check_same_schema(self._source.schema, self._header.schema)
        yield from _scan(self._header, order, self._scratch, wanted)

    def close(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)


def rocksdb_header(handle: IncrementalRemoteKeyedStateHandle, reader: StateReader, max_parallelism: int) -> KeyedHeader:
    """The header in a RocksDB handle's meta stream."""
    return decode_keyed_header(reader.read(handle.meta), max_parallelism, "RocksDB meta stream")
