"""Changelog checkpoints are whole: whatever happens between them, each restores the state it was taken of, at any
parallelism and into either backend, and storage holds what the live ones refer to and nothing else."""

import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.coordinator.state_assignment import assign
from statelib.model.handles import ChangelogStateBackendHandleImpl
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange, subtask_ranges
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.live.logged import restored_log
from statelib.restore.plan import RestoreSource
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.changelog import ChangelogSnapshotStrategy, MaterializationLimits
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import SnapshotResult, SnapshotStrategy, take_snapshot
from statelib.snapshots.uploads.previous import NO_PREVIOUS, PreviousChangelog
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.ports.views import CheckpointedStateScope
from statelib.testing.checkpoint_chain import CheckpointChain, changelog_of, files_of, previous_of
from statelib.testing.counting_reader import CountingReader
from statelib.testing.faulty_streams import FaultyStreams
from statelib.testing.keyed_samples import all_entries, got, owned, put, sample_schema
from tests.support.extent import examples

UID = "5a7b0000-0000-0000-0000-000000000000"
SCHEMA = sample_schema()
KEYS = [f"key-{i}" for i in range(120)]
PLACES = ("ATL", "JFK", "")
Model = dict[str, dict[Any, object]]
LIMITS = MaterializationLimits(3000, 4)


class Subtask:
    """A backend with a log, and its strategy."""

    def __init__(
        self, inner: KeyedStateBackend, previous: PreviousChangelog | None, files=NO_PREVIOUS, limits=LIMITS
    ) -> None:
        self.backend = ChangelogKeyedStateBackend(inner, 100_000)
        shared = CheckpointedStateScope.SHARED
        materializer: SnapshotStrategy[Any]
        if isinstance(inner, RocksDBKeyedStateBackend):
            materializer = RocksDBIncrementalSnapshotStrategy(inner, UID, files, private_scope=shared)
        else:
            materializer = CanonicalSnapshotStrategy(inner, scope=shared)
        self.strategy = ChangelogSnapshotStrategy(self.backend, UID, materializer, limits, previous)

    def close(self) -> None:
        self.strategy.close()
        self.backend.close()


class World:
    """The subtasks, whose processes live for several checkpoints, a model of their state as dicts, and all files of
    their checkpoints."""

    def __init__(self, directory: Path, seed: int, kind: str) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.kind = kind
        self.chain = CheckpointChain(directory / "storage")
        self.model: Model = {d.name: {} for d in SCHEMA.states}
        self.live: dict[int, tuple[list[RestoreSource], Model]] = {}
        self.garbage: set[str] = set()
        self.logged = 0
        self.made = 0
        self.subtasks = [Subtask(self.restored(key_groups, ()), None) for key_groups in subtask_ranges(2, 128)]

    def restored(self, key_groups: KeyGroupRange, sources: Sequence[RestoreSource]) -> KeyedStateBackend:
        self.made += 1
        directory = str(self.directory / f"backend-{self.made}")
        if self.kind == "rocksdb":
            return restore_rocksdb(SCHEMA, key_groups, sources, directory, UID)
        return restore_heap(SCHEMA, key_groups, sources, directory)

    def update(self) -> None:
        for _ in range(self.random.randrange(4)):
            state = self.random.choice(SCHEMA.states).name
            keys = self.random.sample(KEYS, self.random.randrange(1, 40))
            place = self.random.choice(PLACES) if state == "per_place" else None
            values = {key: self._value(state) for key in keys}
            for subtask in self.subtasks:
                mine = owned(SCHEMA, keys, subtask.backend.key_group_range)
                users = None if place is None else [place] * len(mine)
                put(subtask.backend, state, mine, [values[key] for key in mine], users)
            of_state = self.model[state]
            of_state |= {key if place is None else (key, place): value for key, value in values.items()}
            self.model[state] = {key: value for key, value in of_state.items() if value not in (None, [])}

    def _value(self, state: str) -> object:
        number = self.random.random()
        if number < 0.25:
            return None
        made: dict[str, object] = {
            "means": number,
            "totals": {"count": int(number * 1e9), "last": self.random.randbytes(9).hex() if number < 0.6 else None},
            "visits": [int(number * 1e6)] * self.random.randrange(4),
            "per_place": int(number * 1e6),
        }
        return made[state]

    def checkpoint(self, number: int) -> None:
        fate = self.random.choice(["complete"] * 4 + ["restart"] * 4 + ["rescale", "fail", "abort"])
        before = self.chain.files()
        if fate == "fail":
            self._fail(number)
            self.garbage |= self.chain.files() - before
            return
        results = [self._take(subtask, number, i) for i, subtask in enumerate(self.subtasks)]
        sources = [self.chain.source(number, r, s.backend) for r, s in zip(results, self.subtasks, strict=True)]
        assert not {file for source in sources for file in files_of(source)} & self.garbage
        self.logged += sum(len(r.keyed.log) for r in results if isinstance(r.keyed, ChangelogStateBackendHandleImpl))
        if fate == "abort":
            for subtask in self.subtasks:
                subtask.strategy.notify_checkpoint_aborted(CheckpointId(number))
            self.garbage |= self.chain.files() - before
            return
        self.live[number] = (sources, {state: dict(values) for state, values in self.model.items()})
        for subtask in self.subtasks:
            subtask.strategy.notify_checkpoint_complete(CheckpointId(number))
        if fate in ("restart", "rescale"):
            self._restart(sources, len(self.subtasks) if fate == "restart" else self.random.randrange(1, 5))

    def _take(self, subtask: Subtask, number: int, index: int) -> SnapshotResult:
        streams = self.chain.streams(number, index)
        return take_snapshot(subtask.strategy, CheckpointId(number), streams, CloseableRegistry())

    def _fail(self, number: int) -> None:
        def disk_on_fire(operation: int) -> None:
            raise OSError("disk on fire")

        before = self.chain.files()
        for index, subtask in enumerate(self.subtasks):
            streams = FaultyStreams(self.chain.streams(number, index), disk_on_fire)
            try:
                result = take_snapshot(subtask.strategy, CheckpointId(number), streams, CloseableRegistry())
            except OSError:
                assert self.chain.files() == before
            else:
                assert result.streams == (), "only a log to which nothing is added needs no storage"

    def _restart(self, sources: list[RestoreSource], parallelism: int) -> None:
        self.close()
        self.kind = self.random.choice([self.kind, "rocksdb"]) if self._neutral(sources) else self.kind
        ranges = subtask_ranges(parallelism, 128)
        assigned = assign([(source.handle.key_group_range, source) for source in sources], parallelism, 128)
        self.subtasks = []
        for key_groups, parts in zip(ranges, assigned, strict=True):
            inner = self.restored(key_groups, parts)
            continued = restored_log(SCHEMA, key_groups, parts) is not None
            in_place = continued and not self._neutral(list(parts))
            previous = changelog_of(parts[0]) if continued else None
            assert (previous is not None) == continued
            self.subtasks.append(Subtask(inner, previous, previous_of(parts[0]) if in_place else NO_PREVIOUS))

    def _neutral(self, sources: list[RestoreSource]) -> bool:
        """Return whether the materialised state has a form that any backend can restore."""
        handles = [source.handle for source in sources]
        assert all(isinstance(handle, ChangelogStateBackendHandleImpl) for handle in handles)
        below = {type(part).__name__ for handle in handles for part in handle.materialized}
        return below == {"KeyGroupsSavepointStateHandle"}

    def close(self) -> None:
        for subtask in self.subtasks:
            subtask.close()


def expect(backends: Sequence[KeyedStateBackend], model: Model) -> None:
    """Assert that the backends together contain exactly the entries of the model."""
    for backend in backends:
        mine = owned(SCHEMA, KEYS, backend.key_group_range)
        for state in ("means", "totals", "visits"):
            assert got(backend, state, mine) == [model[state].get(key) for key in mine]
        for place in PLACES:
            places = [place] * len(mine)
            assert got(backend, "per_place", mine, places) == [model["per_place"].get((key, place)) for key in mine]
    counts_read = [[len(entries) for entries in all_entries(backend).values()] for backend in backends]
    assert [sum(counts) for counts in zip(*counts_read, strict=True)] == [len(model[d.name]) for d in SCHEMA.states]


@pytest.mark.parametrize("kind", ["heap", "rocksdb"])
@settings(max_examples=examples(2), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_checkpoints_restore_their_state_despite_failures_restarts_and_rescaling(kind: str, seed: int) -> None:
    with scratch() as directory:
        world = World(directory, seed, kind)
        for number in range(1, 17):
            world.update()
            world.checkpoint(number)
        world.close()
        assert world.logged > 0
        referred = {file for sources, _ in world.live.values() for source in sources for file in files_of(source)}
        assert world.chain.files() == referred | world.garbage
        for number, (sources, model) in world.live.items():
            ranges = subtask_ranges(1 + number % 3, 128)
            assigned = assign([(s.handle.key_group_range, s) for s in sources], len(ranges), 128)
            backends = [world.restored(r, parts) for r, parts in zip(ranges, assigned, strict=True)]
            expect(backends, model)
            for backend in backends:
                backend.close()


@pytest.mark.parametrize("kind", ["heap", "rocksdb"])
def test_changing_a_thousandth_of_the_keys_uploads_at_most_a_hundredth(tmp_path: Path, kind: str) -> None:
    whole = KeyGroupRange(0, 127)
    inner = (
        HeapKeyedStateBackend(SCHEMA, whole)
        if kind == "heap"
        else RocksDBKeyedStateBackend(SCHEMA, whole, str(tmp_path / "first"), UID)
    )
    chain, subtask, noise = CheckpointChain(tmp_path / "storage"), Subtask(inner, None), random.Random(1)
    keys = [f"key-{i}" for i in range(40_000)]

    def write(to: Subtask, some: list[str]) -> None:
        put(to.backend, "totals", some, [{"count": 1, "last": noise.randbytes(60).hex()} for _ in some])

    def take(of: Subtask, number: int) -> SnapshotResult:
        return take_snapshot(of.strategy, CheckpointId(number), chain.streams(number), CloseableRegistry())

    def written(result: SnapshotResult) -> int:
        return sum(stream.size_bytes for stream in result.streams)

    write(subtask, keys)
    first = take(subtask, 1)
    source = chain.source(1, first, subtask.backend)
    previous = changelog_of(source)
    subtask.close()
    limits = MaterializationLimits(100_000, 4)
    again = Subtask(restore(kind, source, tmp_path / "second"), previous, limits=limits)
    write(again, noise.sample(keys, 40))
    second = take(again, 2)
    assert written(first) > 2_000_000
    assert 0 < written(second) <= written(first) * 0.01
    expected, source = all_entries(again.backend), chain.source(2, second, again.backend)
    again.close()
    assert isinstance(source.reader, DirectoryReader)
    counting = CountingReader(source.reader.directory_uri, source.reader.checksums, chain.directory)
    back = restore(kind, RestoreSource(source.handle, counting, SCHEMA, source.statistics), tmp_path / "third")
    assert all_entries(back) == expected
    assert counting.read_bytes.total() <= written(first) + written(second)
    back.close()


def restore(kind: str, source: RestoreSource, directory: Path) -> KeyedStateBackend:
    if kind == "heap":
        return restore_heap(SCHEMA, source.handle.key_group_range, [source])
    return restore_rocksdb(SCHEMA, source.handle.key_group_range, [source], str(directory), UID)


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a directory for one example."""
    directory = Path(tempfile.mkdtemp(prefix="statelib-changelog-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
