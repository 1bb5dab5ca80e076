"""Restoring a keyed backend from old handles, at the same parallelism or another, by the same definition or
a newer one.

What comes out is proved to be what was written, or nothing comes out at all.
"""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend, database_directory
from statelib.backends.rocksdb.database import column_families
from statelib.backends.rocksdb.stored import scan_stored
from statelib.backends.rocksdb.takeover import TakenOver, check_database, check_states, is_as_wanted, take_over
from statelib.errors import InvalidRequestError
from statelib.model.amounts import number_of
from statelib.model.choices import Backend
from statelib.model.handles import stream_handles
from statelib.model.key_groups import KeyGroupRange, all_key_groups
from statelib.model.state import KeyedStateSchema, StateKind, StateStatistics, empty_statistics, merge_statistics
from statelib.restore.base import Base, choose_base
from statelib.restore.check import Tally, count_entries, cut_statistics, expected_statistics
from statelib.restore.entries import iter_entries, rocksdb_header
from statelib.restore.logged import logged_database, restore_logged, restored_log
from statelib.restore.plan import RestoreSource, check_backend
from statelib.restore.proof import damage_named
from statelib.restore.rocksdb_files import materialise
from statelib.restore.schemas.evolution import Evolution, evolution_of
from statelib.restore.schemas.matching import check_same_schema
from statelib.storage.local.file_identity import KnownFile

log = logging.getLogger(__name__)


def restore_heap(
    schema: KeyedStateSchema,
    key_group_range: KeyGroupRange,
    sources: Sequence[RestoreSource],
    scratch_directory: str | None = None,
) -> HeapKeyedStateBackend:
    """A heap backend with the range's entries of all sources.

    ``scratch_directory``: needed for RocksDB handles only. Raises CorruptStateError
    (``restore-mismatch`` and what the formats raise), InvalidRequestError (``state-schema-changed``,
    ``non-restored-state``)."""
    backend = HeapKeyedStateBackend(schema, key_group_range)
    _load(backend, sources, scratch_directory)
    if restored_log(schema, key_group_range, sources) is not None:  # then the next snapshot may write changes only
        (source,) = sources
        known = expected_statistics(source, key_group_range) or ()
        backend.set_statistics(dict(zip((d.name for d in source.schema.states), known, strict=True)))
    return backend


def restore_rocksdb(
    schema: KeyedStateSchema,
    key_group_range: KeyGroupRange,
    sources: Sequence[RestoreSource],
    directory: str,
    backend_uid: str,
) -> RocksDBKeyedStateBackend:
    """A RocksDB backend with the range's entries of all sources, in ``directory`` (absent or empty).

    The database that holds most of the range is copied, cut to the range and
    gone on with; only entries of other sources are loaded; a changelog checkpoint's is opened as it is and its
    log replayed. Raises as :func:`restore_heap`, and InvalidRequestError (``backend-changed``) for the heap's own
    stream; then the directory is gone."""
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
        statistics, known = _copied(schema, key_group_range, base, directory)
        backend = RocksDBKeyedStateBackend.open_existing(
            schema, key_group_range, directory, backend_uid, statistics, restored_files=known
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
    """Load the entries of the backend's key groups from each source, and check them as they were stored."""
    evolutions = [evolution_of(backend.schema, source) for source in sources]
    for number, (source, evolution) in enumerate(zip(sources, evolutions, strict=True)):
        wanted = source.handle.key_group_range.intersection(backend.key_group_range)
        targets = evolution.targets()
        tally = Tally(source, wanted)
        dropped = np.zeros((len(targets), 2), np.int64)
        scratch = None if scratch_directory is None else f"{scratch_directory}-{number}"
        with damage_named(source.reader, stream_handles(source.handle)):
            for index, rows in iter_entries(source, wanted, scratch):
                tally.add(index, rows)
                target = targets[index]
                if target is not None:
                    backend.load(target.state, target.migrate(rows))
                else:
                    dropped[index] += (len(rows), len(rows.keys.data) + len(rows.values.data))
            tally.check()
        for name, (entries, size_bytes) in zip((d.name for d in source.schema.states), dropped.tolist(), strict=True):
            if name in evolution.non_restored:
                _dropped(source, name, wanted, entries, size_bytes)


def _dropped(source: RestoreSource, state: str, key_groups: KeyGroupRange, entries: int, size_bytes: int) -> None:
    """Say what is left out. Timers that nobody asked to leave out may be registered, but none may be set."""
    if source.schema.state(state).kind is StateKind.TIMERS and not source.allow_non_restored:
        if not entries:
            return
        raise InvalidRequestError(
            f"the stored state has {number_of(entries, 'timer')} in {state!r}, the pipeline has no state"
            " with such timers",
            kind="timer-state",
            hint="let the timers fire, or delete them, in the job that set them; or allow_non_restored_state: true",
        )
    log.warning(
        "state %r is not restored: key groups %s, %d entries, %d bytes dropped", state, key_groups, entries, size_bytes
    )


def _copied(
    schema: KeyedStateSchema, key_group_range: KeyGroupRange, base: Base, directory: str
) -> tuple[tuple[StateStatistics, ...], dict[str, KnownFile]]:
    """Copy the base's database to where a backend in ``directory`` opens it, with the range's key groups and the
    states of ``schema``; returns the statistics of what it holds then, and the files that it was made of."""
    source, handle = base.source, base.handle
    evolution = evolution_of(schema, source)
    header = rocksdb_header(handle, source.reader, schema.max_parallelism)
    check_same_schema(source.schema, header.schema, partial=source.partial)
    path = database_directory(directory)
    held = handle.key_group_range.intersection(key_group_range)
    names = tuple(d.name for d in source.schema.states)
    database = TakenOver(str(path), names, source.statistics, handle.key_group_range, schema.max_parallelism)
    try:
        known = materialise(handle, source.reader, path, with_options=False)
        if source.statistics is None:
            # of what Flink itself cut away, something may be left
            every = all_key_groups(schema.max_parallelism)
            database = replace(database, states=_present(header.schema, str(path)), held=every)
        wanted = [d.name for d in schema.states]
        as_it_is = is_as_wanted(database, held, wanted)
        if source.statistics is not None and not source.checksummed:
            _read_whole(source, handle.key_group_range, path)
        elif source.statistics is not None and as_it_is:
            check_states(database)  # the rest when it is opened
        else:
            check_database(database)
        sizes = {} if as_it_is else take_over(database, held, wanted)
        if source.statistics is None:
            by_name = _counted(source, held, database)
        else:
            by_name = {n: cut_statistics(s, held) for n, s in zip(names, source.statistics, strict=True)}
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    for name in evolution.non_restored:
        _dropped(source, name, held, by_name[name].total_entries, sizes[name])
    return _statistics(evolution, key_group_range, by_name), known if source.checksummed else {}


def _statistics(
    evolution: Evolution, key_groups: KeyGroupRange, by_name: dict[str, StateStatistics]
) -> tuple[StateStatistics, ...]:
    """In the order of the wanted states; key groups that others will fill are empty."""
    return tuple(
        empty_statistics(key_groups)
        if resolution.stored is None
        else merge_statistics(key_groups, [by_name[resolution.stored]])
        for resolution in evolution.resolutions
    )


def _present(schema: KeyedStateSchema, directory: str) -> tuple[str, ...]:
    """The states that a database of Flink's is expected to have: timers only where they are kept in it."""
    families = column_families(directory)
    return tuple(d.name for d in schema.states if d.kind is not StateKind.TIMERS or d.name in families)


def _counted(source: RestoreSource, key_groups: KeyGroupRange, database: TakenOver) -> dict[str, StateStatistics]:
    """What a database that was cut to the key groups holds: nobody recorded it."""
    order = {d.name: i for i, d in enumerate(source.schema.states)}
    scanned = scan_stored(database.directory, database.states, None, database.max_parallelism)
    entries = ((order[database.states[i]], rows) for i, rows in scanned)
    return dict(zip(order, count_entries(source.schema, key_groups, entries), strict=True))


def _read_whole(source: RestoreSource, key_group_range: KeyGroupRange, database: Path) -> None:
    """Compare every entry of the copied database with the source's statistics: nothing else proves its files."""
    tally = Tally(source, key_group_range)
    names = [d.name for d in source.schema.states]
    for index, rows in scan_stored(str(database), names, None, source.schema.max_parallelism):
        tally.add(index, rows)
    tally.check()
