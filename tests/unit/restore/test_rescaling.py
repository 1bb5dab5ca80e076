"""Another parallelism: every key in one subtask, every entry as it was, and no entry read that may stay where it is."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rocksdict import Rdict

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.rocksdb.database import open_readable
from statelib.backends.rocksdb.reading import scan, table_scan
from statelib.coordinator.state_assignment import assign
from statelib.errors import CorruptStateError
from statelib.model.handles import IncrementalRemoteKeyedStateHandle
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange, subtask_ranges
from statelib.model.state import KeyedStateSchema, StateStatistics
from statelib.restore.check import check_content
from statelib.restore.live.base import choose_base, restored_in_place
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.restore.stored.rocksdb_files import materialise
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.testing.checkpoint_chain import CheckpointChain
from statelib.testing.keyed_samples import all_entries, fill, sample_schema

pytestmark = pytest.mark.slow

UID = "5a7b0000-0000-0000-0000-000000000000"
NAMES = [d.name for d in sample_schema().states]
Strategy = Callable[[Any], Any]
STRATEGIES: dict[str, tuple[str, Strategy]] = {
    "rocksdb full": ("rocksdb", lambda b: RocksDBFullSnapshotStrategy(b, UID)),
    "rocksdb incremental": ("rocksdb", lambda b: RocksDBIncrementalSnapshotStrategy(b, UID)),
    "rocksdb canonical": ("rocksdb", CanonicalSnapshotStrategy),
    "heap native": ("heap", lambda b: HeapNativeSnapshotStrategy(b, UID)),
    "heap canonical": ("heap", CanonicalSnapshotStrategy),
}


class World:
    """Checkpoints of one operator at any parallelism, on real storage."""

    def __init__(self, root: Path, way: str = "rocksdb full", schema: KeyedStateSchema | None = None) -> None:
        self.root, self.number = root, 0
        self.backend, self.strategy = STRATEGIES[way]
        self.schema = schema or sample_schema()
        self.chain = CheckpointChain(root / "storage")

    def restore(self, key_groups: KeyGroupRange, sources: Sequence[RestoreSource]) -> KeyedStateBackend:
        self.number += 1
        if self.backend == "heap":
            return restore_heap(self.schema, key_groups, sources)
        return restore_rocksdb(self.schema, key_groups, sources, str(self.root / f"live-{self.number}"), UID)

    def assigned(self, sources: Sequence[RestoreSource], parallelism: int) -> list[tuple[KeyGroupRange, Any]]:
        assignment = assign([(s.handle.key_group_range, s) for s in sources], parallelism, self.schema.max_parallelism)
        return list(zip(subtask_ranges(parallelism, self.schema.max_parallelism), assignment, strict=True))

    def checkpoint(self, backends: Sequence[KeyedStateBackend]) -> list[RestoreSource]:
        """Take a snapshot of each backend and close the backends."""
        self.number += 1
        sources = []
        for subtask, backend in enumerate(backends):
            strategy = self.strategy(backend)
            streams = self.chain.streams(self.number, subtask)
            result = take_snapshot(strategy, CheckpointId(self.number), streams, CloseableRegistry())
            sources.append(self.chain.source(self.number, result, backend))
            strategy.close()
            backend.close()
        return sources

    def filled(self, parallelism: int, count: int = 400) -> list[RestoreSource]:
        backends = [self.restore(r, ()) for r in subtask_ranges(parallelism, self.schema.max_parallelism)]
        for backend in backends:
            fill(backend, count)
        return self.checkpoint(backends)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the entries that are read from RocksDB or its tables, and those that are loaded. The real functions still
    run."""
    counts: Counter[str] = Counter()
    take, newest, load = scan._take, table_scan.newest_entries, RocksDBKeyedStateBackend.load

    def taking(*arguments: Any) -> Any:
        keys, values = take(*arguments)
        counts["scanned"] += len(keys)
        return keys, values

    def merging(*arguments: Any, **options: Any) -> Any:
        rows = newest(*arguments, **options)
        counts["scanned"] += len(rows)
        return rows

    def loading(self: RocksDBKeyedStateBackend, state: str, rows: Any) -> None:
        counts["loaded"] += len(rows)
        load(self, state, rows)

    monkeypatch.setattr(scan, "_take", taking)
    monkeypatch.setattr(table_scan, "newest_entries", merging)
    monkeypatch.setattr(RocksDBKeyedStateBackend, "load", loading)
    return counts


def merged(backends: Sequence[KeyedStateBackend]) -> dict[str, dict[bytes, bytes]]:
    """Return all entries. Assert that each lies once in the backend that owns its key group, and is counted."""
    whole: dict[str, dict[bytes, bytes]] = {name: {} for name in NAMES}
    for backend in backends:
        for (name, entries), statistics in zip(all_entries(backend).items(), backend.statistics(), strict=True):
            assert all(key[0] in backend.key_group_range for key in entries)
            assert not whole[name].keys() & entries.keys()
            groups = np.bincount([key[0] for key in entries], minlength=128)
            assert np.array_equal(
                groups[backend.key_group_range.start :][: len(statistics.entries)], statistics.entries
            )
            whole[name] |= entries
    return whole


@pytest.mark.parametrize("way", STRATEGIES)
def test_state_is_restored_from_any_parallelism_to_any_other(tmp_path: Path, way: str) -> None:
    world = World(tmp_path, way)
    sources = world.filled(2)
    expected = merged([world.restore(r, s) for r, s in world.assigned(sources, 2)])
    assert sum(map(len, expected.values())) == 400 * 5
    for parallelism in (5, 3, 1, 8):
        backends = [world.restore(r, s) for r, s in world.assigned(sources, parallelism)]
        assert merged(backends) == expected
        sources = world.checkpoint(backends)


def test_canonical_streams_are_restored_into_either_backend(tmp_path: Path) -> None:
    world = World(tmp_path, "rocksdb canonical")
    sources = world.filled(3)
    rocksdb = [world.restore(r, s) for r, s in world.assigned(sources, 2)]
    heap = [restore_heap(world.schema, r, s) for r, s in world.assigned(sources, 5)]
    assert merged(rocksdb) == merged(heap)


def test_an_unchanged_range_is_opened_without_reading_an_entry(tmp_path: Path, counted: Counter[str]) -> None:
    world = World(tmp_path)
    ((key_groups, sources),) = world.assigned(world.filled(1), 1)
    counted.clear()
    backend = world.restore(key_groups, sources)
    assert not counted
    assert sum(s.total_entries for s in backend.statistics()) == 2000


def test_halving_a_range_cuts_the_database_without_reading_an_entry(tmp_path: Path, counted: Counter[str]) -> None:
    world = World(tmp_path)
    old = world.filled(1)
    counted.clear()
    backends = [world.restore(r, s) for r, s in world.assigned(old, 2)]
    assert not counted
    assert sum(map(len, merged(backends).values())) == 2000


def test_joining_ranges_reads_only_the_key_groups_that_the_base_does_not_have(
    tmp_path: Path, counted: Counter[str]
) -> None:
    world = World(tmp_path)
    ((whole, old),) = world.assigned(world.filled(2), 1)
    counted.clear()
    backend = world.restore(whole, old)
    other = sum(s.total_entries for s in old[1].statistics)
    assert dict(counted) == {"scanned": other, "loaded": other}
    assert 0 < other < 1200
    assert sum(map(len, merged([backend]).values())) == 2000


def test_shifted_ranges_read_only_the_missing_key_groups(tmp_path: Path, counted: Counter[str]) -> None:
    world = World(tmp_path)
    subtasks = world.assigned(world.filled(3), 2)
    counted.clear()
    backends = [world.restore(r, s) for r, s in subtasks]
    # The ranges 0-42 and 43-85 become 0-63: the second gives 43-63. The ranges 43-85 and 86-127 become 64-127: the
    # first gives 64-85.
    missing = [KeyGroupRange(43, 63), KeyGroupRange(64, 85)]
    results = [
        sum(int(s.entries[[group - b.key_group_range.start for group in gap]].sum()) for s in b.statistics())
        for b, gap in zip(backends, missing, strict=True)
    ]
    assert dict(counted) == {"scanned": sum(results), "loaded": sum(results)}


def test_a_snapshot_after_a_cut_contains_no_foreign_entry(tmp_path: Path) -> None:
    """No foreign entry lies beneath a range tombstone, and no tombstone is left."""
    world = World(tmp_path)
    backends = [world.restore(r, s) for r, s in world.assigned(world.filled(1), 4)]
    entries = [sum(s.total_entries for s in b.statistics()) for b in backends]
    for source, expected in zip(world.checkpoint(backends), entries, strict=True):
        db = _opened(source, tmp_path / str(source.handle.key_group_range))
        files = db.live_files()
        assert sum(f["num_entries"] for f in files) == expected
        assert sum(f["num_deletions"] for f in files) == 0
        db.close()


def _opened(source: RestoreSource, directory: Path) -> Rdict:
    assert isinstance(source.handle, IncrementalRemoteKeyedStateHandle)
    materialise(source.handle, source.reader, directory, with_options=False)
    return open_readable(str(directory), NAMES)


def test_the_base_is_the_handle_with_most_of_the_range_and_then_with_fewest_others(tmp_path: Path) -> None:
    (source,) = World(tmp_path).filled(1, 0)

    def held(*ranges: tuple[int, int]) -> list[RestoreSource]:
        return [replace(source, handle=replace(source.handle, key_group_range=KeyGroupRange(*r))) for r in ranges]

    def chosen(wanted: tuple[int, int], *ranges: tuple[int, int]) -> int | None:
        base = choose_base(source.schema, KeyGroupRange(*wanted), held(*ranges))
        return base.number if base else None

    assert chosen((0, 63), (0, 42), (43, 85)) == 0
    assert chosen((40, 99), (0, 42), (43, 85), (86, 127)) == 1
    assert chosen((32, 95), (0, 63), (64, 95)) == 1, "as many key groups, fewer others"
    assert chosen((32, 95), (0, 63), (64, 127)) == 0, "as good: the first"
    assert chosen((0, 10), (11, 20)) is None
    assert choose_base(source.schema, KeyGroupRange(0, 127), [replace(source, statistics=None)]) is None, "a list"


def test_only_an_unchanged_range_is_in_place(tmp_path: Path) -> None:
    world = World(tmp_path)
    first, second = world.filled(2, 0)
    range_ = first.handle.key_group_range
    assert restored_in_place(world.schema, range_, [first]) is first.handle
    assert restored_in_place(world.schema, KeyGroupRange(0, 127), [first, second]) is None
    assert restored_in_place(world.schema, KeyGroupRange(0, 31), [first]) is None
    assert restored_in_place(world.schema, range_, [first, second]) is None


@pytest.fixture
def swapped(tmp_path: Path) -> Iterator[tuple[World, RestoreSource]]:
    """Return a source with the right checksums of the wrong database: subtask 1's files under subtask 0's
    statistics."""
    world = World(tmp_path)
    first, second = world.filled(2)
    assert isinstance(second.handle, IncrementalRemoteKeyedStateHandle)
    yield (
        world,
        replace(
            second, handle=replace(second.handle, key_group_range=KeyGroupRange(0, 63)), statistics=first.statistics
        ),
    )
    assert not list(tmp_path.glob("live-*"))


def test_a_database_of_other_key_groups_is_refused(swapped: tuple[World, RestoreSource]) -> None:
    world, source = swapped
    for wanted in (KeyGroupRange(0, 63), KeyGroupRange(0, 31), KeyGroupRange(0, 127)):
        with pytest.raises(
            CorruptStateError, match=r"state 'totals': expected the next entries in key group \d+"
        ) as caught:
            world.restore(wanted, [source])
        assert caught.value.kind == "restore-mismatch"


@pytest.mark.parametrize("group", [0, 77, 127])
@pytest.mark.parametrize("wanted", [(0, 127), (0, 63), (70, 127)])
def test_a_missing_or_additional_key_group_is_detected(tmp_path: Path, group: int, wanted: tuple[int, int]) -> None:
    world = World(tmp_path)
    (source,) = world.filled(1)
    assert source.statistics is not None
    means = source.statistics[1]
    entries = means.entries.copy()
    entries[group] = 0 if entries[group] else 1
    changed = StateStatistics(means.key_group_range, entries, means.digests)
    statistics = (source.statistics[0], changed, *source.statistics[2:])
    with pytest.raises(CorruptStateError, match="state 'means'") as caught:
        world.restore(KeyGroupRange(*wanted), [replace(source, statistics=statistics)])
    assert caught.value.kind == "restore-mismatch"


def test_reading_everything_detects_entries_that_the_cheap_check_does_not(tmp_path: Path) -> None:
    """A whole read finds entries that differ in key groups of the right number, which the cheap check does not find."""
    world = World(tmp_path)
    (source,) = world.filled(1)
    assert source.statistics is not None
    means = source.statistics[1]
    digests = means.digests.copy()
    digests[17] += np.uint64(1)
    changed = StateStatistics(means.key_group_range, means.entries, digests)
    statistics = (source.statistics[0], changed, *source.statistics[2:])
    good, bad = (world.restore(KeyGroupRange(0, 127), [s]) for s in (source, replace(source, statistics=statistics)))
    check_content(good)
    with pytest.raises(CorruptStateError, match="state 'means', key group 17: expected") as caught:
        check_content(bad)
    assert caught.value.kind == "restore-mismatch"
    good.close()
    bad.close()


def test_more_than_256_key_groups_are_restored(tmp_path: Path) -> None:
    world = World(tmp_path, schema=sample_schema(1000))
    sources = world.filled(3, 200)
    total = 0
    for key_groups, old in world.assigned(sources, 2):
        backend = world.restore(key_groups, old)
        heap = restore_heap(world.schema, key_groups, old, str(tmp_path / f"scratch-{key_groups}"))
        assert isinstance(heap, HeapKeyedStateBackend)
        assert all_entries(backend) == all_entries(heap)
        total += sum(map(len, all_entries(heap).values()))
    assert total == 200 * 5
