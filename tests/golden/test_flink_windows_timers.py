"""Windows and timers of Flink's own snapshots: they are exported as the jobs recorded them, and do not change when
they are written back."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.errors import InvalidRequestError
from statelib.model.handles import KeyGroupsSavepointStateHandle, KeyGroupsStateHandle
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateKind
from statelib.restore.entries import iter_entries
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import SnapshotStrategy, take_snapshot
from statelib.snapshots.uploads.previous import NO_PREVIOUS
from statelib.storage.closeables import CloseableRegistry
from statelib.testing.checkpoint_chain import CheckpointChain, Entries
from statelib.testing.keyed_samples import all_entries
from tests.golden.flink_fixtures import ROOT
from tests.golden.flink_fixtures import opened as newest

FIXTURES = [
    "1.20.5/windows-hashmap-canonical",
    "2.3.0/windows-hashmap-canonical",
    "1.20.5/timers-hashmap-canonical",
    "1.20.5/timers-rocksdb-canonical",
    "1.20.5/timers-rocksdb-native",
]
WHOLE = KeyGroupRange(0, 127)
UID = "5a7b0000-0000-0000-0000-000000000000"


def opened(fixture: str) -> Checkpoint:
    return newest(ROOT / fixture)


def strategies(heap: HeapKeyedStateBackend, rocksdb: RocksDBKeyedStateBackend) -> list[SnapshotStrategy[Any]]:
    return [
        CanonicalSnapshotStrategy(heap),
        HeapNativeSnapshotStrategy(heap, UID),
        CanonicalSnapshotStrategy(rocksdb),
        RocksDBFullSnapshotStrategy(rocksdb, UID),
        RocksDBIncrementalSnapshotStrategy(rocksdb, UID, NO_PREVIOUS),
    ]


def entries_of_snapshot(part: Checkpoint, scratch: Path) -> Entries:
    entries: Entries = {d.name: {} for d in part.schema().states}
    for source in part.sources():
        for state, rows in iter_entries(source, None, str(scratch / "read")):
            entries[source.schema.states[state].name] |= zip(rows.keys.to_list(), rows.values.to_list(), strict=True)
    return entries


def rescaled(source: RestoreSource, schema: KeyedStateSchema, scratch: Path) -> Iterator[KeyedStateBackend]:
    """Restore the state as a whole and in two parts, into each backend that can read the source."""
    for at, owned in enumerate((WHOLE, KeyGroupRange(0, 40), KeyGroupRange(41, 127))):
        yield restore_heap(schema, owned, [source], f"{scratch}-h{at}")
        if not isinstance(source.handle, KeyGroupsStateHandle) or isinstance(
            source.handle, KeyGroupsSavepointStateHandle
        ):
            yield restore_rocksdb(schema, owned, [source], f"{scratch}-r{at}", UID)


@pytest.mark.parametrize("fixture", FIXTURES)
def test_every_strategy_keeps_windows_and_timers_and_every_backend_restores_them(fixture: str, tmp_path: Path) -> None:
    chain, number = CheckpointChain(tmp_path / "storage"), 0
    for index, part in enumerate(opened(fixture).each_operator()):
        expected = entries_of_snapshot(part, tmp_path)
        heap = restore_heap(part.schema(), WHOLE, part.sources(), str(tmp_path / f"h{index}"))
        rocksdb = restore_rocksdb(part.schema(), WHOLE, part.sources(), str(tmp_path / f"r{index}"), UID)
        assert all_entries(heap) == all_entries(rocksdb) == expected
        for one, other in zip(heap.statistics(), rocksdb.statistics(), strict=True):
            assert one.same_content(other)
        for strategy in strategies(heap, rocksdb):
            number += 1
            taken = take_snapshot(strategy, CheckpointId(number), chain.streams(number), CloseableRegistry())
            source = chain.source(number, taken, heap)
            for again in rescaled(source, heap.schema, tmp_path / f"{number}"):
                assert all_entries(again) == {
                    name: {key: value for key, value in of_state.items() if key[0] in again.key_group_range}
                    for name, of_state in expected.items()
                }
                again.close()
        heap.close()
        rocksdb.close()


def test_timer_states_are_dropped_only_if_they_have_no_timers() -> None:
    """Flink registers a job's timers whether it sets any or not; existing timers are never lost silently."""
    for fixture, refused in (("kinds-rocksdb-canonical-p1", False), ("timers-rocksdb-canonical", True)):
        (metadata,) = (ROOT / "1.20.5" / fixture).rglob("_metadata")
        (part,) = open_checkpoint(str(metadata.parent)).each_operator()
        states = tuple(d for d in part.schema().states if d.kind is not StateKind.TIMERS)
        assert len(states) == len(part.schema().states) - 2
        wanted = replace(part.schema(), states=states)
        if refused:
            with pytest.raises(InvalidRequestError, match=r"_timer_state/.*user-timers") as caught:
                restore_heap(wanted, WHOLE, part.sources())
            assert caught.value.kind == "timer-state"
        else:
            assert all(all_entries(restore_heap(wanted, WHOLE, part.sources())).values())
