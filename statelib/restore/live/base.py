"""The choice of the old RocksDB database that a backend continues with. Other sources only add entries to it.

Source: docs/spec/formats.md#restoring-rocksdb-state
(RocksDBIncrementalCheckpointUtils.chooseTheBestStateHandleForInitial).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateKind
from statelib.restore.live.logged import logged_database
from statelib.restore.plan import RestoreSource
from statelib.restore.schemas.evolution import evolution_of, keeps_database


@dataclass(frozen=True)
class Base:
    """The source whose RocksDB database a backend continues with. ``number`` is its index among the sources."""

    number: int
    source: RestoreSource
    handle: IncrementalRemoteKeyedStateHandle


def choose_base(
    schema: KeyedStateSchema, key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]
) -> Base | None:
    """Return the source whose RocksDB files hold most of the wanted key groups. Among equals, the source with the
    fewest other key groups is chosen, then the first one.

    Return None if all entries have to be loaded instead, because there is no RocksDB handle or values must be
    migrated. A database that Flink wrote is also loaded entry by entry if it has lists, which Flink may store as merge
    operands that only its own options can combine, or if states are left out, because their entries were never
    counted."""
    best: Base | None = None
    best_score = (0, 0.0)
    for number, source in enumerate(sources):
        handle = source.handle
        if not isinstance(handle, IncrementalRemoteKeyedStateHandle):
            continue
        overlap = len(handle.key_group_range.intersection(key_group_range))
        score = (overlap, overlap / max(len(handle.key_group_range), 1))
        if overlap and score > best_score and keeps_database(schema, source) and _is_usable(schema, source):
            best, best_score = Base(number, source, handle), score
    return best


def _is_usable(schema: KeyedStateSchema, source: RestoreSource) -> bool:
    """Return whether the database can be taken over with the statistics that its source has."""
    if source.statistics is not None:
        return True
    lists = any(state.kind is StateKind.LIST for state in source.schema.states)
    return not lists and not evolution_of(schema, source).non_restored


def reuses_database(schema: KeyedStateSchema, key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]) -> bool:
    """Return whether a RocksDB backend is restored by copying files without reading each of their entries."""
    logged = logged_database(schema, key_group_range, sources)
    return logged is not None or choose_base(schema, key_group_range, sources) is not None


def restored_in_place(
    schema: KeyedStateSchema, key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]
) -> IncrementalRemoteKeyedStateHandle | None:
    """Return the handle whose files a RocksDB backend continues with unchanged.

    Return None if any file is rewritten, if entries are added from another source, or if the source has no statistics
    because Flink wrote it."""
    if len(sources) != 1 or sources[0].handle.key_group_range != key_group_range or sources[0].statistics is None:
        return None
    logged = logged_database(schema, key_group_range, sources)
    base = choose_base(schema, key_group_range, sources)
    return logged.files if logged else base.handle if base else None
