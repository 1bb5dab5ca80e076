"""Restoring a keyed backend from old handles, at the same parallelism or another.

What comes out is proved to be what was written, or nothing comes out at all.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend, database_directory
from statelib.backends.rocksdb.stored import scan_stored
from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateStatistics
from statelib.restore.check import Tally
from statelib.restore.entries import iter_entries, rocksdb_header
from statelib.restore.plan import RestoreSource, refuse_heap_native
from statelib.restore.rocksdb_files import materialise
from statelib.restore.schemas import check_same_schema


def restore_heap(
    schema: KeyedStateSchema,
    key_group_range: KeyGroupRange,
    sources: Sequence[RestoreSource],
    scratch_directory: str | None = None,
) -> HeapKeyedStateBackend:
    """A heap backend with the range's entries of all sources.

    ``scratch_directory``: needed for RocksDB handles only. Raises CorruptStateError
    (``restore-mismatch`` and what the formats raise), InvalidRequestError (``state-schema-changed``)."""
    backend = HeapKeyedStateBackend(schema, key_group_range)
    _load(backend, sources, scratch_directory)
    return backend


def restore_rocksdb(
    schema: KeyedStateSchema,
    key_group_range: KeyGroupRange,
    sources: Sequence[RestoreSource],
    directory: str,
    backend_uid: str,
) -> RocksDBKeyedStateBackend:
    """A RocksDB backend with the range's entries of all sources, in ``directory`` (absent or empty).

    One RocksDB source of the same range, written by statelib, is copied and opened as it is;
    otherwise the entries are loaded. Raises as :func:`restore_heap`, and UnsupportedError
    (``heap-native``) for the heap's own stream; then the directory is gone."""
    refuse_heap_native(source.handle for source in sources)
    handle = restored_in_place(key_group_range, sources)
    if handle is not None:
        statistics = _copied_in_place(schema, sources[0], handle, directory)
        return RocksDBKeyedStateBackend.open_existing(schema, key_group_range, directory, backend_uid, statistics)
    backend = RocksDBKeyedStateBackend(schema, key_group_range, directory, backend_uid)
    try:
        _load(backend, sources, f"{directory}-restore")
    except BaseException:
        backend.close()
        raise
    return backend


def restored_in_place(
    key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]
) -> IncrementalRemoteKeyedStateHandle | None:
    """The handle whose files become a RocksDB backend's own as they are; None where entries are loaded."""
    if len(sources) != 1 or sources[0].handle.key_group_range != key_group_range:
        return None
    handle = sources[0].handle
    # Without statistics nothing would notice a database that opens shorter than it was.
    if not isinstance(handle, IncrementalRemoteKeyedStateHandle) or sources[0].statistics is None:
        return None
    return handle


def _load(backend: KeyedStateBackend, sources: Sequence[RestoreSource], scratch_directory: str | None) -> None:
    """Load the entries of the backend's key groups from each source, and check them."""
    names = [d.name for d in backend.schema.states]
    for number, source in enumerate(sources):
        order = check_same_schema(backend.schema, source.schema)
        wanted = source.handle.key_group_range.intersection(backend.key_group_range)
        tally = Tally(source, wanted)
        scratch = None if scratch_directory is None else f"{scratch_directory}-{number}"
        for index, rows in iter_entries(source, wanted, scratch):
            tally.add(index, rows)
            backend.load(names[order[index]], rows)
        tally.check()


def _copied_in_place(
    schema: KeyedStateSchema, source: RestoreSource, handle: IncrementalRemoteKeyedStateHandle, directory: str
) -> tuple[StateStatistics, ...]:
    """Copy the database to where a backend in ``directory`` opens it; its statistics, in the order of ``schema``."""
    order = check_same_schema(schema, source.schema)
    check_same_schema(source.schema, rocksdb_header(handle, source.reader, schema.max_parallelism).schema)
    database = database_directory(directory)
    try:
        materialise(handle, source.reader, database, with_options=False)
        found = _verified(source, handle.key_group_range, database)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return tuple(found[order.index(i)] for i in range(len(order)))


def _verified(source: RestoreSource, key_group_range: KeyGroupRange, database: Path) -> tuple[StateStatistics, ...]:
    """The source's statistics, once a whole read of the copied database has agreed with them."""
    tally = Tally(source, key_group_range)
    assert tally.expected is not None
    names = [d.name for d in source.schema.states]
    for index, rows in scan_stored(str(database), names, None, source.schema.max_parallelism):
        tally.add(index, rows)
    tally.check()
    return tally.expected
