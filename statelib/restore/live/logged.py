"""Restoring a RocksDB backend from a changelog checkpoint of the same key groups: the database is opened unchanged and
the log is replayed into it.

For another key group range, or after a change of the definition, entries are loaded as from any other handle.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from statelib.aggregates.declared import folding_of
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend, database_directory
from statelib.backends.rocksdb.reading.stored import scan_stored
from statelib.backends.rocksdb.takeover import TakenOver, check_states
from statelib.errors import CorruptStateError
from statelib.model.handles import ChangelogStateBackendHandleImpl, IncrementalRemoteKeyedStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateStatistics
from statelib.restore.changelog.change_log import ChangeLog, read_change_log
from statelib.restore.check import Tally, expected_statistics
from statelib.restore.entries import rocksdb_header
from statelib.restore.plan import RestoreSource
from statelib.restore.schemas.evolution import evolution_of
from statelib.restore.schemas.matching import check_same_schema
from statelib.restore.stored.rocksdb_files import materialise
from statelib.storage.local.file_identity import KnownFile


@dataclass(frozen=True)
class Logged:
    """A source whose database can be opened unchanged, its changelog handle, and the handle of the database's files."""

    source: RestoreSource
    handle: ChangelogStateBackendHandleImpl
    files: IncrementalRemoteKeyedStateHandle


def restored_log(
    schema: KeyedStateSchema, key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]
) -> ChangelogStateBackendHandleImpl | None:
    """Return the one changelog handle if a backend is restored from exactly its entries, or else None.

    The key groups and the schema must be unchanged, and the source must have statistics."""
    if len(sources) != 1 or sources[0].handle.key_group_range != key_group_range or sources[0].statistics is None:
        return None
    handle = sources[0].handle
    if not isinstance(handle, ChangelogStateBackendHandleImpl):
        return None
    evolution = evolution_of(schema, sources[0])
    as_it_was = not evolution.rewrites and not evolution.non_restored and all(r.stored for r in evolution.resolutions)
    return handle if as_it_was else None


def open_log(
    schema: KeyedStateSchema, key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]
) -> ChangelogStateBackendHandleImpl | None:
    """Return the one changelog handle that a delta can be added to without reading it, or else None.

    As for :func:`restored_log`, but it may have open deltas. Values of all states must be merged as before."""
    if restored_log(schema, key_group_range, [source.without_deltas() for source in sources]) is None:
        return None
    (source,) = sources
    assert isinstance(source.handle, ChangelogStateBackendHandleImpl)
    foldings = [folding_of(state) for state in schema.states]
    as_stored = foldings == [folding_of(state) for state in source.schema.states]
    return source.handle if as_stored and None not in foldings else None


def logged_database(
    schema: KeyedStateSchema, key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]
) -> Logged | None:
    """Return the one source if its files are a database of exactly this range and schema; otherwise None."""
    handle = restored_log(schema, key_group_range, sources)
    if handle is None or len(handle.materialized) != 1:
        return None
    (files,) = handle.materialized
    if not isinstance(files, IncrementalRemoteKeyedStateHandle) or files.key_group_range != key_group_range:
        return None
    return Logged(sources[0], handle, files)


def restore_logged(
    schema: KeyedStateSchema, logged: Logged, directory: str, backend_uid: str
) -> RocksDBKeyedStateBackend:
    """Return the backend with its log replayed. Raise CorruptStateError; the directory is removed in that case."""
    log = read_plain_log(logged)
    statistics, restored_files = _copy_database(schema, logged, directory, log)
    key_groups = logged.files.key_group_range
    backend = RocksDBKeyedStateBackend.open_existing(
        schema, key_groups, directory, backend_uid, statistics, restored_files=restored_files
    )
    try:
        for index, changes in log.changes.items():
            backend.replay(logged.source.schema.states[index].name, changes.put, changes.gone)
        backend.check_key_groups()
    except BaseException:
        backend.close()
        raise
    return backend


def read_plain_log(logged: Logged) -> ChangeLog:
    """Read the log. Raise CorruptStateError if it does more than put and remove single entries."""
    log = read_change_log(logged.source, logged.handle, logged.handle.key_group_range)
    if not all(changes.plain for changes in log.changes.values()):
        raise CorruptStateError(
            "the change log adds to lists or clears maps, which no log of statelib's does", kind="corrupt-changelog"
        )
    return log


def _copy_database(
    schema: KeyedStateSchema, logged: Logged, directory: str, log: ChangeLog
) -> tuple[tuple[StateStatistics, ...], dict[str, KnownFile]]:
    """Copy the database to where a backend in ``directory`` opens it.

    Return the source's statistics in the state order of ``schema``, which describe the database after its log is
    replayed, and the copied files. If no checksum proves the files, read every entry and compare them with the
    statistics."""
    source, files = logged.source, logged.files
    order = check_same_schema(schema, source.schema)
    check_same_schema(source.schema, rocksdb_header(files, source.reader, schema.max_parallelism).schema)
    database = database_directory(directory)
    expected = expected_statistics(source, files.key_group_range)
    assert expected is not None, "restored_log takes no source without statistics"
    names = tuple(d.name for d in source.schema.states)
    try:
        copied_files = materialise(files, source.reader, database, with_options=False)
        if source.checksummed:
            check_states(TakenOver(str(database), names, None, files.key_group_range, schema.max_parallelism))
        else:
            _read_whole(logged, database, log)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    statistics = tuple(expected[order.index(i)] for i in range(len(order)))
    return statistics, copied_files if source.checksummed else {}


def _read_whole(logged: Logged, database: Path, log: ChangeLog) -> None:
    """Compare every entry of the copied database, with the log applied, with the source's statistics."""
    schema, key_groups = logged.source.schema, logged.files.key_group_range
    tally, overlay = Tally(logged.source, key_groups), log.over(key_groups)
    names = [d.name for d in schema.states]
    for index, rows in scan_stored(str(database), names, None, schema.max_parallelism):
        tally.add(index, overlay.covered(index, rows))
    for index, rows in overlay.rest():
        tally.add(index, rows)
    tally.check()
