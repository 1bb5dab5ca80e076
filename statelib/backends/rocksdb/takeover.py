"""Preparing a copied RocksDB database for a new subtask: foreign key groups are removed, states added and dropped.

The remaining entries are not read. Source: docs/spec/formats.md#restoring-rocksdb-state
(RocksDBIncrementalCheckpointUtils.clipDBWithKeyGroupRange).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from rocksdict import Rdict

from statelib.backends.rocksdb.database import (
    LIVE_BYTES,
    check_live_files,
    column_families,
    family_options,
    open_readable,
    open_writable,
    rocksdb_errors,
    table_names,
    without_wal,
)
from statelib.errors import CorruptStateError
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import StateStatistics


@dataclass(frozen=True)
class TakenOver:
    """The description of a copied database in a directory. ``states``: the names of its states. ``held``: the key
    groups that it contains. ``statistics``: one element per state, each for ``held`` or a larger range; None if they
    were not recorded."""

    directory: str
    states: tuple[str, ...]
    statistics: tuple[StateStatistics, ...] | None
    held: KeyGroupRange
    max_parallelism: int


def check_database(database: TakenOver) -> None:
    """Raise CorruptStateError unless the database matches its description. The cost is one seek per key group with
    entries.

    Kinds: ``missing-state``, ``rocksdb-files-mismatch``, ``corrupt-rocksdb``, and ``restore-mismatch`` for a key group
    with entries where the statistics have none, or the reverse. The entries themselves are not checked; without
    statistics, key groups are not checked either."""
    present = check_states(database)
    db = open_readable(database.directory, sorted(present))
    try:
        check_live_files(db, database.directory, table_names(database.directory))
        width = prefix_width(database.max_parallelism)
        by_state = zip(database.states, database.statistics, strict=True) if database.statistics is not None else ()
        for name, statistics in by_state:
            with rocksdb_errors(database.directory, f"looking into state {name!r}"):
                check_key_groups(db.get_column_family(name), name, statistics, database.held, width)
    finally:
        db.close()


def check_states(database: TakenOver) -> set[str]:
    """Return the names of all column families. Raises CorruptStateError (``missing-state``) if a state of the database
    has none."""
    present = column_families(database.directory)
    missing = [name for name in database.states if name not in present]
    if missing:
        raise CorruptStateError(
            f"RocksDB at {database.directory}: no column family for the states {missing}, found {sorted(present)}",
            kind="missing-state",
        )
    return present


def check_key_groups(family: Rdict, name: str, statistics: StateStatistics, held: KeyGroupRange, width: int) -> None:
    """Raise CorruptStateError (``restore-mismatch``) unless exactly those key groups of ``held`` have entries that
    have entries in the statistics. ``width``: size of the key-group prefix in bytes."""
    cut = held.start - statistics.key_group_range.start
    entries = statistics.entries[cut : cut + len(held)]
    iterator = family.iter()
    iterator.seek_to_first()
    for group in (*(np.flatnonzero(entries) + held.start).tolist(), None):
        actual = int.from_bytes(iterator.key()[:width], "big") if iterator.valid() else None
        iterator.status()
        if actual != group:
            raise CorruptStateError(
                f"state {name!r}: expected the next entries in key group {group}, found them in {actual}"
                " (None: at the end)",
                kind="restore-mismatch",
                hint="statelib verify names the damaged file; restore an older checkpoint",
            )
        if group is not None:
            iterator.seek((group + 1).to_bytes(width, "big"))


def is_as_wanted(database: TakenOver, wanted: KeyGroupRange, states: Sequence[str]) -> bool:
    """Return whether the database already has exactly the wanted key groups and states, so that :func:`take_over` has
    nothing to do."""
    return set(database.states) == set(states) and not list(_foreign(database.held, wanted))


def take_over(database: TakenOver, wanted: KeyGroupRange, states: Sequence[str]) -> dict[str, int]:
    """Reduce the database to the key groups ``wanted`` and give it exactly the states ``states``; new states are
    empty. Return the size on disk in bytes of each dropped state, by name.

    Files that hold both wanted and foreign key groups are rewritten (compacted), so that the next snapshot contains
    no range tombstones and no deleted entries. Raises CorruptStateError (``corrupt-rocksdb``), RetryableError
    (``rocksdb-io``)."""
    dropped = [name for name in database.states if name not in states]
    added = [name for name in states if name not in database.states]
    foreign = list(_foreign(database.held, wanted))
    present = sorted(column_families(database.directory))
    db = open_writable(database.directory, present, create=False)
    try:
        sizes = _drop(db, database.directory, dropped)
        with rocksdb_errors(database.directory, f"adding the states {added}"):
            for name in added:
                db.create_column_family(name, family_options())
        for name in present:
            if name not in dropped:
                _cut(db.get_column_family(name), database, foreign)
    finally:
        with rocksdb_errors(database.directory, "closing it"):
            db.close()
    return sizes


def _drop(db: Rdict, directory: str, names: Iterable[str]) -> dict[str, int]:
    """Drop column families and return the size on disk in bytes of each, by name."""
    sizes = {}
    with rocksdb_errors(directory, "dropping states"):
        for name in names:
            sizes[name] = db.get_column_family(name).property_int_value(LIVE_BYTES) or 0
            db.drop_column_family(name)
    return sizes


def _foreign(held: KeyGroupRange, wanted: KeyGroupRange) -> Iterable[tuple[int, int]]:
    """Yield the ranges [start, stop) of the key groups of ``held`` that are not wanted."""
    if held.start < wanted.start:
        yield held.start, wanted.start
    if wanted.end < held.end:
        yield wanted.end + 1, held.end + 1


def _cut(family: Rdict, database: TakenOver, foreign: Iterable[tuple[int, int]]) -> None:
    """Delete the key groups in the ranges ``foreign`` and compact their key ranges."""
    width = prefix_width(database.max_parallelism)
    with rocksdb_errors(database.directory, "cutting it to its key groups"):
        for start, stop in foreign:
            first, end = start.to_bytes(width, "big"), stop.to_bytes(width, "big")
            family.delete_range(first, end, without_wal())
            family.compact_range(first, end)
