"""Incremental checkpoints are whole: whatever happens between them, each restores the state it was taken of,
and storage holds what the live ones refer to and nothing else."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.restore.live.keyed import restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.serializers.entries.keys import key_groups
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import SnapshotResult, take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import FileMergingSettings
from statelib.testing.checkpoint_chain import CheckpointChain, files_of, previous_of
from statelib.testing.faulty_streams import FaultyStreams
from statelib.testing.keyed_samples import all_entries, got, put, sample_schema
from tests.support.extent import examples

UID = "5a7b0000-0000-0000-0000-000000000000"
RANGE = KeyGroupRange(0, 127)
SCHEMA = sample_schema()
KEYS = [f"key-{i}" for i in range(300)]
STATES = ("means", "totals")

Model = dict[str, dict[str, object]]


class World:
    """A subtask, whose process lives for several checkpoints, a model of its state as dicts, and all files of its
    checkpoints."""

    def __init__(self, directory: Path, seed: int, merging: FileMergingSettings | None) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.chain = CheckpointChain(directory / "storage", merging=merging)
        self.model: Model = {state: {} for state in STATES}
        self.live: dict[int, tuple[RestoreSource, Model]] = {}
        self.garbage: set[str] = set()
        self.reused = 0
        self.backend = RocksDBKeyedStateBackend(SCHEMA, RANGE, str(directory / "backend-0"), UID)
        self.strategy = RocksDBIncrementalSnapshotStrategy(self.backend, UID)
        small_files(self.backend)

    def update(self) -> None:
        for state in STATES:
            keys = self.random.sample(KEYS, self.random.randrange(60))
            values = [self._value(state) for _ in keys]
            put(self.backend, state, keys, values)
            self.model[state] |= dict(zip(keys, values, strict=True))
            self.model[state] = {k: v for k, v in self.model[state].items() if v is not None}

    def _value(self, state: str) -> object:
        number = self.random.random()
        if number < 0.2:
            return None
        return number if state == "means" else {"count": int(number * 1e9), "last": self.random.randbytes(20).hex()}

    def checkpoint(self, number: int) -> None:
        fate = self.random.choice(["complete"] * 6 + ["restart", "restart", "fail", "abort"])
        before = self.chain.files()
        if fate == "fail":
            self._fail(number)
            assert self.chain.files() == before
            return
        result = self._take(number)
        self.reused += len(result.reused)
        source = self.chain.source(number, result, self.backend)
        assert not files_of(source) & self.garbage
        if fate == "abort":
            self.strategy.notify_checkpoint_aborted(CheckpointId(number))
            self.garbage |= self.chain.files() - before
            return
        self.live[number] = (source, {state: dict(values) for state, values in self.model.items()})
        self.strategy.notify_checkpoint_complete(CheckpointId(number))
        if fate == "restart":
            self._restart(number, source)

    def _take(self, number: int) -> SnapshotResult:
        return take_snapshot(self.strategy, CheckpointId(number), self.chain.streams(number), CloseableRegistry())

    def _fail(self, number: int) -> None:
        at = self.random.randrange(12)

        def disk_on_fire(operation: int) -> None:
            if operation == at:
                raise OSError("disk on fire")

        streams = FaultyStreams(self.chain.streams(number), disk_on_fire)
        with pytest.raises(OSError, match="disk on fire"):
            take_snapshot(self.strategy, CheckpointId(number), streams, CloseableRegistry())

    def _restart(self, number: int, source: RestoreSource) -> None:
        self.close()
        directory = str(self.directory / f"backend-{number}")
        self.backend = restore_rocksdb(SCHEMA, RANGE, [source], directory, UID)
        self.strategy = RocksDBIncrementalSnapshotStrategy(self.backend, UID, previous_of(source))
        small_files(self.backend)

    def close(self) -> None:
        self.strategy.close()
        self.backend.close()


def small_files(backend: RocksDBKeyedStateBackend) -> None:
    """Limit SST files to a few KiB, so that a small state has many of them and a compaction changes only some."""
    for family in backend._families.values():
        family.set_options({"target_file_size_base": "16384", "max_bytes_for_level_base": "65536"})


@settings(max_examples=examples(4), deadline=None)
@given(seed=st.integers(0, 2**32), merging=st.sampled_from([None, FileMergingSettings(40_000, 1.5)]))
def test_fifty_checkpoints_restore_their_state_despite_compaction_failures_and_restarts(
    seed: int, merging: FileMergingSettings | None
) -> None:
    with scratch() as directory:
        world = World(directory, seed, merging)
        for number in range(1, 51):
            world.update()
            if world.random.random() < 0.15:
                for family in world.backend._families.values():
                    family.compact_range(None, None)
            world.checkpoint(number)
        world.close()
        assert world.reused > 0
        referred = set().union(*(files_of(source) for source, _ in world.live.values()))
        assert world.chain.files() == referred | world.garbage
        for number, (source, model) in world.live.items():
            backend = restore_rocksdb(SCHEMA, RANGE, [source], str(directory / f"read-{number}"), UID)
            for state in STATES:
                assert got(backend, state, KEYS) == [model[state].get(key) for key in KEYS]
            assert [len(e) for e in all_entries(backend).values()] == [len(model["totals"]), len(model["means"]), 0, 0]
            backend.close()


@pytest.fixture
def large(tmp_path: Path) -> Iterator["Large"]:
    world = Large(tmp_path)
    yield world
    world.close()


class Large:
    """A state of 40,000 entries, which checkpoint 1 writes as a whole. ``full``: the bytes of that checkpoint."""

    def __init__(self, directory: Path) -> None:
        self.chain = CheckpointChain(directory / "storage")
        self.backend = RocksDBKeyedStateBackend(SCHEMA, RANGE, str(directory / "backend"), UID)
        self.backend._families["totals"].set_options({"target_file_size_base": str(64 * 1024)})
        self.strategy = RocksDBIncrementalSnapshotStrategy(self.backend, UID)
        self.whole = RocksDBFullSnapshotStrategy(self.backend, UID)
        self.random = random.Random(1)
        self.keys = [f"key-{i}" for i in range(40_000)]
        self.write(self.keys)
        self.compact()
        self.full = self.take(1)

    def write(self, keys: list[str]) -> None:
        put(self.backend, "totals", keys, [{"count": 1, "last": self.random.randbytes(60).hex()} for _ in keys])

    def compact(self) -> None:
        self.backend._families["totals"].compact_range(None, None)

    def take(self, number: int) -> int:
        """Take an incremental checkpoint, complete it, and return the number of uploaded bytes."""
        result = take_snapshot(self.strategy, CheckpointId(number), self.chain.streams(number), CloseableRegistry())
        self.strategy.notify_checkpoint_complete(CheckpointId(number))
        return written(result)

    def take_whole(self, number: int) -> int:
        """Return the number of bytes that a full checkpoint of the same state uploads."""
        return written(take_snapshot(self.whole, CheckpointId(number), self.chain.streams(number), CloseableRegistry()))

    def close(self) -> None:
        self.strategy.close()
        self.whole.close()
        self.backend.close()


def written(result: SnapshotResult) -> int:
    return sum(stream.size_bytes for stream in result.streams)


def test_changing_one_percent_of_neighbouring_keys_uploads_at_most_five_percent(large: Large) -> None:
    groups = key_groups(SCHEMA, pa.array(large.keys)).tolist()
    local = [key for key, group in zip(large.keys, groups, strict=True) if 60 <= group <= 61][:400]
    assert len(local) == 400
    sizes = []
    for number in range(2, 14):
        large.write(local)
        sizes.append(large.take(number))
    assert large.full > 2_000_000
    assert max(sizes) <= large.full * 0.05


def test_scattered_updates_never_upload_more_than_a_full_checkpoint(large: Large) -> None:
    for number in range(2, 12):
        large.write(large.random.sample(large.keys, 400 if number % 3 else 8000))
        if number % 4 == 0:
            large.compact()
        size = large.take(number)
        assert 0 < size <= large.take_whole(100 + number)


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a directory for one example."""
    directory = Path(tempfile.mkdtemp(prefix="statelib-incremental-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
