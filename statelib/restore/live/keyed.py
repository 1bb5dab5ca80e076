"""Restoring a keyed backend from old handles, at the same or another parallelism, with the same or a newer definition.

A restored backend is proved to hold the entries that were written; otherwise the restore fails.
"""

import logging
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend, database_directory
from statelib.backends.rocksdb.database import column_families
from statelib.backends.rocksdb.reading.stored import scan_stored
from statelib.backends.rocksdb.takeover import TakenOver, check_database, check_states, is_as_wanted, take_over
from statelib.model.choices import Backend
from statelib.model.handles import stream_handles
from statelib.model.key_groups import KeyGroupRange, all_key_groups
from statelib.model.state import KeyedStateSchema, StateKind, StateStatistics, empty_statistics, merge_statistics
from statelib.restore.check import Tally, count_entries, cut_statistics, expected_statistics
from statelib.restore.entries import EntryReader, rocksdb_header
from statelib.restore.live.base import Base, choose_base
from statelib.restore.live.deltas import Watch, unwatched, with_open_deltas
from statelib.restore.live.logged import logged_database, restore_logged, restored_log
from statelib.restore.plan import RestoreSource, check_backend
from statelib.restore.schemas.evolution import Evolution, evolution_of, timers_left
from statelib.restore.schemas.matching import check_same_schema
from statelib.restore.stored.proof import damage_named, prove
from statelib.restore.stored.rocksdb_files import materialise
from statelib.storage.local.file_identity import KnownFile

log = logging.getLogger(__name__)


def restore_heap(
    schema: KeyedStateSchema,
    key_group_range: KeyGroupRange,
    sources: Sequence[RestoreSource],
    scratch_directory: str | None = None,
    *,
    watched: Watch = unwatched,
) -> HeapKeyedStateBackend:
    """Return a heap backend with the entries of all sources in the key group range.

    ``scratch_directory`` is needed for RocksDB handles only. ``watched``: what open deltas are merged through.
    Raise CorruptStateError (``restore-mismatch``, and what the formats raise), InvalidRequestError
    (``state-schema-changed``, ``non-restored-state``)."""
    restore = partial(_restore_heap, schema, key_group_range, scratch_directory=scratch_directory)
    return with_open_deltas(restore, schema, key_group_range, sources, watched)


def _restore_heap(
    schema: KeyedStateSchema,
    key_group_range: KeyGroupRange,
    sources: Sequence[RestoreSource],
    scratch_directory: str | None,
) -> HeapKeyedStateBackend:
    backend = HeapKeyedStateBackend(schema, key_group_range)
    _load(backend, sources, scratch_directory)
    if restored_log(schema, key_group_range, sources) is not None:  # then the next snapshot may write only changes
        (source,) = sources
        statistics = expected_statistics(source, key_group_range) or ()
        backend.set_statistics(dict(zip((d.name for d in source.schema.states), statistics, strict=True)))
    return backend


def restore_rocksdb(
    schema: KeyedStateSchema,
    key_group_range: KeyGroupRange,
    sources: Sequence[RestoreSource],
    directory: str,
    backend_uid: str,
    *,
    watched: Watch = unwatched,
) -> RocksDBKeyedStateBackend:
    """Return a RocksDB backend with the entries of all sources in the key group range.

    Its database is in ``directory``, which must be absent or empty. The old database that holds most of the range is
    copied and cut to the range, and the entries of the other sources are loaded into it. The database of a changelog
    checkpoint of the same range is opened unchanged, and its log is replayed.

    Raise what :func:`restore_heap` raises, and InvalidRequestError (``backend-changed``) for a native heap stream. The
    directory is removed in that case."""
    restore = partial(_restore_rocksdb, schema, key_group_range, directory=directory, backend_uid=backend_uid)
    return with_open_deltas(restore, schema, key_group_range, sources, watched)


def _restore_rocksdb(
    schema: KeyedStateSchema,
    key_group_range: KeyGroupRange,
    sources: Sequence[RestoreSource],
    directory: str,
    backend_uid: str,
) -> RocksDBKeyedStateBackend:
    check_backend(Backend.ROCKSDB, (source.handle for source in sources))
    for source in sources:
        evolution_of(schema, source)
    logged = logged_database(schema, key_group_range, sources)
    if logged is not None:
        return restore_logged(schema, logged, directory, backend_uid)
    base = choose_base(schema, key_group_range, sources)
    if base is None:
        backend = RocksDBKeyedStateBackend(schema, key_group_range, directory, backend_uid)
    else:
        statistics, restored_files = _copy_database(schema, key_group_range, base, directory)
        backend = RocksDBKeyedStateBackend.open_existing(
            schema, key_group_range, directory, backend_uid, statistics, restored_files=restored_files
        )
    try:
        backend.check_key_groups()
        others = [source for number, source in enumerate(sources) if base is None or number != base.number]
        _load(backend, others, f"{directory}-restore")
    except BaseException:
        backend.close()
        raise
    return backend


def _load(backend: KeyedStateBackend, sources: Sequence[RestoreSource], scratch_directory: str | None) -> None:
    """Load the entries of the backend's key groups from each source, and compare them with its recorded statistics.

    Digests are compared unless the source is read whole and has checksums, which prove the same bytes."""
    evolutions = [evolution_of(backend.schema, source) for source in sources]
    for number, (source, evolution) in enumerate(zip(sources, evolutions, strict=True)):
        wanted = source.handle.key_group_range.intersection(backend.key_group_range)
        targets = evolution.targets()
        by_checksum = source.checksummed and wanted == source.handle.key_group_range
        tally = Tally(source, wanted, digests=not by_checksum)
        dropped = np.zeros((len(targets), 2), np.int64)
        reader = EntryReader(source, None if scratch_directory is None else f"{scratch_directory}-{number}", wanted)
        with closing(reader), damage_named(source.reader, stream_handles(source.handle)):
            for index, rows in reader.read([wanted]):
                tally.add(index, rows)
                target = targets[index]
                if target is not None:
                    backend.load(target.state, target.migrate(rows))
                else:
                    dropped[index] += (len(rows), len(rows.keys.data) + len(rows.values.data))
            tally.check()
            if by_checksum and not reader.is_proved():
                prove(source.reader, stream_handles(source.handle))
        for name, (entries, size_bytes) in zip((d.name for d in source.schema.states), dropped.tolist(), strict=True):
            if name in evolution.non_restored:
                _report_dropped(source, name, wanted, entries, size_bytes)


def _report_dropped(
    source: RestoreSource, state: str, key_groups: KeyGroupRange, entries: int, size_bytes: int
) -> None:
    """Log that a stored state is dropped. An empty timer state is dropped silently.

    Raise InvalidRequestError (``timer-state``) if the state has timers and dropping state is not allowed."""
    if source.schema.state(state).kind is StateKind.TIMERS and not source.allow_non_restored:
        if not entries:
            return
        raise timers_left(state, entries)
    log.warning(
        "state %r is not restored: key groups %s, %d entries, %d bytes dropped", state, key_groups, entries, size_bytes
    )


def _copy_database(
    schema: KeyedStateSchema, key_group_range: KeyGroupRange, base: Base, directory: str
) -> tuple[tuple[StateStatistics, ...], dict[str, KnownFile]]:
    """Copy the base's database to where a backend in ``directory`` opens it, and cut it to the key group range and the
    states of ``schema``. Return the statistics of its entries afterwards, and the copied files."""
    source, handle = base.source, base.handle
    evolution = evolution_of(schema, source)
    header = rocksdb_header(handle, source.reader, schema.max_parallelism)
    check_same_schema(source.schema, header.schema, partial=source.partial)
    path = database_directory(directory)
    key_groups = handle.key_group_range.intersection(key_group_range)
    names = tuple(d.name for d in source.schema.states)
    database = TakenOver(str(path), names, source.statistics, handle.key_group_range, schema.max_parallelism)
    try:
        copied_files = materialise(handle, source.reader, path, with_options=False)
        if source.statistics is None:
            # Entries that Flink itself cut away may still be in its files.
            all_groups = all_key_groups(schema.max_parallelism)
            database = replace(database, states=_present(header.schema, str(path)), held=all_groups)
        wanted = [d.name for d in schema.states]
        as_it_is = is_as_wanted(database, key_groups, wanted)
        if source.statistics is not None and not source.checksummed:
            _read_whole(source, handle.key_group_range, path)
        elif source.statistics is not None and as_it_is:
            check_states(database)  # opening the database checks the rest
        else:
            check_database(database)
        sizes = {} if as_it_is else take_over(database, key_groups, wanted)
        if source.statistics is None:
            by_name = _counted(source, key_groups, database)
        else:
            by_name = {n: cut_statistics(s, key_groups) for n, s in zip(names, source.statistics, strict=True)}
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    for name in evolution.non_restored:
        _report_dropped(source, name, key_groups, by_name[name].total_entries, sizes[name])
    return _statistics(evolution, key_group_range, by_name), copied_files if source.checksummed else {}


def _statistics(
    evolution: Evolution, key_groups: KeyGroupRange, by_name: dict[str, StateStatistics]
) -> tuple[StateStatistics, ...]:
    """Return the statistics per wanted state, in their order. Key groups that other sources will fill are empty."""
    return tuple(
        empty_statistics(key_groups)
        if resolution.stored is None
        else merge_statistics(key_groups, [by_name[resolution.stored]])
        for resolution in evolution.resolutions
    )


def _present(schema: KeyedStateSchema, directory: str) -> tuple[str, ...]:
    """Return the states that a database written by Flink must have: timer states only if they are stored in it."""
    families = column_families(directory)
    return tuple(d.name for d in schema.states if d.kind is not StateKind.TIMERS or d.name in families)


def _counted(source: RestoreSource, key_groups: KeyGroupRange, database: TakenOver) -> dict[str, StateStatistics]:
    """Count the entries of a database that was cut to the key groups, because no statistics were recorded."""
    order = {d.name: i for i, d in enumerate(source.schema.states)}
    scanned = scan_stored(database.directory, database.states, None, database.max_parallelism)
    entries = ((order[database.states[i]], rows) for i, rows in scanned)
    return dict(zip(order, count_entries(source.schema, key_groups, entries), strict=True))


def _read_whole(source: RestoreSource, key_group_range: KeyGroupRange, database: Path) -> None:
    """Compare every entry of the copied database with the source's statistics, because no checksum proves its files."""
    tally = Tally(source, key_group_range)
    names = [d.name for d in source.schema.states]
    for index, rows in scan_stored(str(database), names, None, source.schema.max_parallelism):
        tally.add(index, rows)
    tally.check()
