"""A database without recorded statistics, such as Flink's: it is cut, continued and counted."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.errors import CorruptStateError
from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange, subtask_ranges
from statelib.model.state import StateKind
from statelib.restore.check import check_content
from statelib.restore.live.base import choose_base, restored_in_place
from statelib.restore.live.keyed import restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategy import take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.testing.checkpoint_chain import CheckpointChain
from statelib.testing.keyed_samples import all_entries, owned, put, sample_schema

SCHEMA = replace(sample_schema(), states=tuple(d for d in sample_schema().states if d.kind is not StateKind.LIST))
UID = "5a7b0000-0000-0000-0000-000000000000"
LAST = SCHEMA.max_parallelism - 1


def stored(root: Path, parallelism: int) -> list[RestoreSource]:
    """Return snapshots of so many subtasks, of which only the files are recorded."""
    chain, sources = CheckpointChain(root / "storage"), []
    for subtask, key_groups in enumerate(subtask_ranges(parallelism, SCHEMA.max_parallelism)):
        backend = RocksDBKeyedStateBackend(SCHEMA, key_groups, str(root / f"filled-{subtask}"), UID)
        keys = owned(SCHEMA, [f"key-{i}" for i in range(300)], key_groups)
        put(backend, "totals", keys, [{"count": i, "last": f"at {i}" if i % 3 else None} for i in range(len(keys))])
        put(backend, "means", keys, [i / 7 for i in range(len(keys))])
        put(backend, "per_place", keys, list(range(len(keys))), ["ATL"] * len(keys))
        strategy = RocksDBFullSnapshotStrategy(backend, UID)
        result = take_snapshot(strategy, CheckpointId(1), chain.streams(1, subtask), CloseableRegistry())
        sources.append(chain.source(1, result, backend))
        strategy.close()
        backend.close()
    return sources


def unrecorded(sources: Sequence[RestoreSource]) -> list[RestoreSource]:
    return [replace(source, statistics=None, checksummed=False) for source in sources]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_an_unrecorded_database_is_restored_like_a_recorded_one(tmp_path: Path, parallelism: int) -> None:
    sources = stored(tmp_path, 2)
    for subtask, key_groups in enumerate(subtask_ranges(parallelism, SCHEMA.max_parallelism)):
        wanted = [s for s in sources if len(s.handle.key_group_range.intersection(key_groups))]
        assert choose_base(SCHEMA, key_groups, unrecorded(wanted)) is not None
        from_recorded = restore_rocksdb(SCHEMA, key_groups, wanted, str(tmp_path / f"known-{subtask}"), UID)
        counted = restore_rocksdb(SCHEMA, key_groups, unrecorded(wanted), str(tmp_path / f"counted-{subtask}"), UID)
        assert all_entries(counted) == all_entries(from_recorded)
        for one, other in zip(counted.statistics(), from_recorded.statistics(), strict=True):
            assert one.key_group_range == other.key_group_range == key_groups
            assert np.array_equal(one.entries, other.entries)
            assert np.array_equal(one.digests, other.digests)
        check_content(counted)
        from_recorded.close()
        counted.close()


def test_files_of_an_unrecorded_database_are_not_referred_to(tmp_path: Path) -> None:
    (source,) = stored(tmp_path, 1)
    assert restored_in_place(SCHEMA, KeyGroupRange(0, LAST), [source]) is source.handle
    assert restored_in_place(SCHEMA, KeyGroupRange(0, LAST), unrecorded([source])) is None


def test_a_state_that_is_left_out_prevents_the_use_of_the_database_as_base(tmp_path: Path) -> None:
    """Its entries must be counted, so that the log can name their number."""
    ((source,), left) = unrecorded(stored(tmp_path, 1)), replace(SCHEMA, states=SCHEMA.states[1:])
    source = replace(source, allow_non_restored=True)
    assert choose_base(left, KeyGroupRange(0, LAST), [source]) is None
    backend = restore_rocksdb(left, KeyGroupRange(0, LAST), [source], str(tmp_path / "left"), UID)
    assert [d.name for d in backend.schema.states] == [d.name for d in SCHEMA.states[1:]]
    backend.close()


def test_entries_outside_the_range_are_removed(tmp_path: Path) -> None:
    """Flink's own cuts may leave entries outside of the range."""
    first, _ = stored(tmp_path, 2)
    narrow = KeyGroupRange(20, 40)
    (source,) = unrecorded([replace(first, handle=replace(first.handle, key_group_range=narrow))])
    backend = restore_rocksdb(SCHEMA, KeyGroupRange(0, LAST), [source], str(tmp_path / "narrow"), UID)
    results = {key[0] for entries in all_entries(backend).values() for key in entries}
    assert results
    assert results <= set(range(20, 41))
    check_content(backend)
    backend.close()


def test_an_additional_table_is_detected(tmp_path: Path) -> None:
    """RocksDB would remove, when it opens, what its MANIFEST does not name."""
    (source,) = stored(tmp_path, 1)
    handle = source.handle
    assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
    table = next(stream for name, stream in handle.private if name.endswith(".sst"))
    more = replace(handle, private=(*handle.private, ("999999.sst", table)))
    with pytest.raises(CorruptStateError) as caught:
        restore_rocksdb(
            SCHEMA, KeyGroupRange(0, LAST), unrecorded([replace(source, handle=more)]), str(tmp_path / "more"), UID
        )
    assert caught.value.kind == "rocksdb-files-mismatch"
    assert not (tmp_path / "more").exists()
