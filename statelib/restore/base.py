"""Which old RocksDB database a backend goes on with: the others only add entries to it.

Source: flink-formats.md section 8.3 (RocksDBIncrementalCheckpointUtils.chooseTheBestStateHandleForInitial).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateKind
from statelib.restore.logged import logged_database
from statelib.restore.plan import RestoreSource
from statelib.restore.schemas.evolution import evolution_of, keeps_database


@dataclass(frozen=True)
class Base:
    """``number``: its place among the sources."""

    number: int
    source: RestoreSource
    handle: IncrementalRemoteKeyedStateHandle


def choose_base(
    schema: KeyedStateSchema, key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]
) -> Base | None:
    """The source whose files hold most of the wanted key groups, of those the one that holds fewest others,
    of those the first. None where entries have to be loaded: no RocksDB handle, or values that must be migrated; of
    what Flink wrote also lists, which it may keep as operands that only its own options put together, and states that
    are left out, whose entries nobody counted."""
    best: Base | None = None
    best_score = (0, 0.0)
    for number, source in enumerate(sources):
        handle = source.handle
        if not isinstance(handle, IncrementalRemoteKeyedStateHandle):
            continue
        overlap = len(handle.key_group_range.intersection(key_group_range))
        score = (overlap, overlap / max(len(handle.key_group_range), 1))
        if overlap and score > best_score and keeps_database(schema, source) and _is_known(schema, source):
            best, best_score = Base(number, source, handle), score
    return best


def _is_known(schema: KeyedStateSchema, source: RestoreSource) -> bool:
    if source.statistics is not None:
        return True
    lists = any(state.kind is StateKind.LIST for state in source.schema.states)
    return not lists and not evolution_of(schema, source).non_restored


def reuses_database(schema: KeyedStateSchema, key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]) -> bool:
    """Whether a RocksDB backend is restored by copying files of which not every entry is read."""
    logged = logged_database(schema, key_group_range, sources)
    return logged is not None or choose_base(schema, key_group_range, sources) is not None


def restored_in_place(
    schema: KeyedStateSchema, key_group_range: KeyGroupRange, sources: Sequence[RestoreSource]
) -> IncrementalRemoteKeyedStateHandle | None:
    """The handle whose files a RocksDB backend goes on with as they are; None where any of them is rewritten,
    entries are added from elsewhere, or nothing is known of them but what Flink wrote."""
    if len(sources) != 1 or sources[0].handle.key_group_range != key_group_range or sources[0].statistics is None:
        return None
    logged = logged_database(schema, key_group_range, sources)
    base = choose_base(schema, key_group_range, sources)
    return logged.files if logged else base.handle if base else None
