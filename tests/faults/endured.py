"""One subtask that runs for long, with seeded faults in every part of its checkpoints. Its state is compared with a
dict, and each attempt must leave all of its files or none."""

import os
import random
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.errors import StatelibError
from statelib.model.ids import AttemptId, CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.snapshots.execution import executed_snapshot
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.changelog import ChangelogSnapshotStrategy, MaterializationLimits
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import SnapshotResult, SnapshotStrategy
from statelib.snapshots.uploads.previous import NO_PREVIOUS, PreviousSnapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.local.reader import LocalFirstReader
from statelib.storage.local.store import LocalSnapshotDirectories, LocalStateStore
from statelib.storage.ports.views import CheckpointedStateScope
from statelib.testing.checkpoint_chain import CheckpointChain, changelog_of, files_of, previous_of
from statelib.testing.faulty_streams import FaultyStreams
from statelib.testing.keyed_samples import all_entries, got, put, sample_schema
from tests.support.worlds import descriptors, own_threads

UID = "5a7b0000-0000-0000-0000-000000000000"
RANGE = KeyGroupRange(0, 127)
SCHEMA = sample_schema()
KEYS = [f"key-{i}" for i in range(200)]
STRATEGIES = ("heap-canonical", "heap-native", "rocksdb-full", "rocksdb-incremental", "heap-changelog", "changelog")
RETAINED = 3
Model = dict[str, dict[str, object]]


class Subtask:
    """A subtask that runs for long. ``strategy``: one of :data:`STRATEGIES`; ``local``: whether copies are kept on
    this host."""

    def __init__(self, directory: Path, strategy: str, local: bool, seed: int) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.kind = strategy
        self.chain = CheckpointChain(directory / "storage")
        self.store = LocalStateStore(str(directory / "local"), self.chain.directory, "chain") if local else None
        self.model: Model = {"means": {}, "totals": {}}
        self.live: dict[int, tuple[RestoreSource, Model]] = {}
        self.fates: Counter[tuple[str, bool]] = Counter()
        self.lives = 0
        self._begin(None, 0)

    def update(self) -> None:
        inner = self.backend.inner if isinstance(self.backend, ChangelogKeyedStateBackend) else self.backend
        if isinstance(inner, RocksDBKeyedStateBackend) and self.random.random() < 0.2:
            for family in inner._families.values():
                family.compact_range(None, None)
        for state, values in self.model.items():
            keys = self.random.sample(KEYS, self.random.randrange(40))
            new = [self._value(state) for _ in keys]
            put(self.backend, state, keys, new)
            values |= dict(zip(keys, new, strict=True))
            self.model[state] = {k: v for k, v in values.items() if v is not None}

    def checkpoint(self, number: int) -> None:
        """Make one attempt with a randomly chosen fault, and assert afterwards what must hold."""
        fates = {
            "complete": 5,
            "restart": 2,
            "abort": 2,
            "stream": 4,
            "cancel": 4,
            "sync": 1,
            "descriptors": 1,
            "file-size": 1,
            "deadline": 1,
        }
        fate = self.random.choices(list(fates), list(fates.values()))[0]
        before = self.chain.files()
        result = self._attempt(number, fate)
        self.fates[fate, result is not None] += 1
        if result is None and "heap" not in self.kind and fate in {"descriptors", "file-size"}:
            assert self.chain.files() == before
            self._recover(number)
        elif result is None or fate == "abort":
            self._gone(number, self.chain.files() - before if result else set())
            assert self.chain.files() == before
        else:
            self._completed(number, result, restart=fate == "restart")
        self.check_clean()

    def check_clean(self) -> None:
        """Assert that there is no temporary directory, no open descriptor and no thread of a snapshot."""
        assert not own_threads("snapshot")
        places = (str(self.directory / "storage"), str(self.directory / "local"))
        assert not [target for target in descriptors() if target.startswith(places)]
        assert {p.name for p in Path(self._home).iterdir()} <= {"db"}, list(Path(self._home).iterdir())
        assert not list((self.directory / "local").rglob("*.ongoing"))
        assert self.chain.files() == set().union(*(files_of(source) for source, _ in self.live.values()))

    def check_checkpoints(self) -> None:
        """Assert that every retained checkpoint restores the state that the dict had then."""
        for number, (source, model) in self.live.items():
            backend = self._restored(source, str(self.directory / f"read-{number}"))
            for state in model:
                assert got(backend, state, KEYS) == [model[state].get(key) for key in KEYS]
            assert sum(map(len, all_entries(backend).values())) == sum(map(len, model.values()))
            backend.close()

    def close(self) -> None:
        self.strategy.close()
        self.backend.close()
        assert not Path(self._home).exists() or not list(Path(self._home).iterdir())
        assert not own_threads()

    def _attempt(self, number: int, fate: str) -> SnapshotResult | None:
        """Return the result, or None if the attempt failed as expected."""
        streams, registry = self.chain.streams(number), CloseableRegistry()
        timeout_s = None
        disturbance: AbstractContextManager[None] = nullcontext()
        at = self.random.randrange(14)
        if fate == "stream":
            streams = FaultyStreams(streams, _failing_at(at))
        elif fate == "cancel":
            streams = FaultyStreams(streams, _cancelling_at(at, registry))
        elif fate == "sync":
            disturbance = _in_the_way(Path(self._home) / f"chk-{number}")
        elif fate == "descriptors":
            disturbance = _few_descriptors(self.random.randrange(6))
        elif fate == "file-size":
            disturbance = _small_files(self.random.choice([1, 500, 3000]))
        elif fate == "deadline":
            streams, timeout_s = FaultyStreams(streams, lambda _: time.sleep(0.002)), 0.004
        try:
            with (
                disturbance,
                executed_snapshot(
                    self.strategy, CheckpointId(number), streams, registry, timeout_s=timeout_s
                ) as executed,
            ):
                return executed.result
        except (StatelibError, OSError):
            assert fate not in {"complete", "restart", "abort"}, f"{fate} failed"
            return None

    def _gone(self, number: int, files: set[str]) -> None:
        self.strategy.notify_checkpoint_aborted(CheckpointId(number))
        if self.local is not None:
            self.local.discard(CheckpointId(number))
        for file in files:  # This takes the place of the orphan sweep.
            Path(file.removeprefix("file://")).unlink()

    def _recover(self, failed: int) -> None:
        """Begin a new subtask if necessary: RocksDB accepts no more writes after a disk error, so the subtask ends
        and the next one restores."""
        if self.local is not None:
            self.local.discard(CheckpointId(failed))
        self.close()
        number = max(self.live, default=0)
        source, model = self.live.get(number, (None, {"means": {}, "totals": {}}))
        self.model = {state: dict(values) for state, values in model.items()}
        self._begin(source, number)

    def _completed(self, number: int, result: SnapshotResult, *, restart: bool) -> None:
        if self.local is not None:
            self.local.complete(CheckpointId(number), (*result.streams, *result.reused))
        source = self.chain.source(number, result, self.backend)
        self.live[number] = (source, {state: dict(values) for state, values in self.model.items()})
        self.strategy.notify_checkpoint_complete(CheckpointId(number))
        while len(self.live) > RETAINED:
            oldest = min(self.live)
            old, _ = self.live.pop(oldest)
            needed = set().union(*(files_of(other) for other, _ in self.live.values()))
            for file in files_of(old) - needed:
                Path(file.removeprefix("file://")).unlink()
        if restart:
            self.close()
            self._begin(source, number)

    def _begin(self, source: RestoreSource | None, number: int) -> None:
        """Begin a new process of the subtask, on the newest checkpoint."""
        self.lives += 1
        self._home = str(self.directory / f"backend-{self.lives}")
        Path(self._home).mkdir()
        attempt = AttemptId(f"{self.lives:032x}")
        self.local: LocalSnapshotDirectories | None = None
        files: dict[str, tuple[int, int]] = {}
        if source is not None:
            assert isinstance(source.reader, DirectoryReader)
            files = dict(source.reader.checksums or {})
        if self.store is not None:
            base = CheckpointId(number) if source else None
            self.store.prune(CheckpointId(number + 1), attempt, base, files)
            self.local = self.store.directories(attempt, 0)
        inner = self._restored(source, self._home, number)
        rocksdb = source is not None and isinstance(inner, RocksDBKeyedStateBackend) and "full" not in self.kind
        previous = previous_of(source) if rocksdb and source else NO_PREVIOUS
        self.backend, self.strategy = self._made(inner, source, previous)

    def _restored(self, source: RestoreSource | None, home: str, number: int | None = None) -> KeyedStateBackend:
        if source is not None and self.store is not None and number is not None:
            assert isinstance(source.reader, DirectoryReader)
            local_files = self.store.find(CheckpointId(number), source.reader.checksums or {})
            source = replace(source, reader=LocalFirstReader(source.reader, local_files))
        sources = [source] if source else []
        if "heap" in self.kind:
            return restore_heap(SCHEMA, RANGE, sources, f"{home}-scratch")
        return restore_rocksdb(SCHEMA, RANGE, sources, home, UID)

    def _made(
        self, inner: KeyedStateBackend, source: RestoreSource | None, previous: PreviousSnapshot
    ) -> tuple[KeyedStateBackend, SnapshotStrategy[Any]]:
        if "changelog" in self.kind:
            backend = ChangelogKeyedStateBackend(inner, 100_000)
            scope = CheckpointedStateScope.SHARED
            below: SnapshotStrategy[Any] = (
                RocksDBIncrementalSnapshotStrategy(inner, UID, previous, self.local, private_scope=scope)
                if isinstance(inner, RocksDBKeyedStateBackend)
                else CanonicalSnapshotStrategy(inner, local=self.local, scope=scope)
            )
            before = changelog_of(source) if source else None
            return backend, ChangelogSnapshotStrategy(backend, UID, below, MaterializationLimits(20_000, 5), before)
        if isinstance(inner, RocksDBKeyedStateBackend):
            if self.kind == "rocksdb-full":
                return inner, RocksDBFullSnapshotStrategy(inner, UID, self.local)
            return inner, RocksDBIncrementalSnapshotStrategy(inner, UID, previous, self.local)
        assert isinstance(inner, HeapKeyedStateBackend)
        if self.kind == "heap-native":
            return inner, HeapNativeSnapshotStrategy(inner, UID, local=self.local)
        return inner, CanonicalSnapshotStrategy(inner, local=self.local)

    def _value(self, state: str) -> object:
        number = self.random.random()
        if number < 0.2:
            return None
        return number if state == "means" else {"count": int(number * 1e9), "last": self.random.randbytes(20).hex()}


def _failing_at(at: int) -> Callable[[int], None]:
    def hook(operation: int) -> None:
        if operation == at:
            raise OSError("disk on fire")

    return hook


def _cancelling_at(at: int, registry: CloseableRegistry) -> Callable[[int], None]:
    """Let another thread close the registry during the operation."""

    def hook(operation: int) -> None:
        if operation == at:
            canceller = threading.Thread(target=registry.close, name="canceller")
            canceller.start()
            if at % 2:
                canceller.join()

    return hook


@contextmanager
def _in_the_way(path: Path) -> Iterator[None]:
    """Put a file where RocksDB would freeze its own."""
    path.write_bytes(b"")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _few_descriptors(left: int) -> Iterator[None]:
    """Limit the descriptors, so that hardly any file can be opened."""
    free = os.open("/", os.O_RDONLY)
    os.close(free)
    with _limit(resource.RLIMIT_NOFILE, free + left):
        yield


@contextmanager
def _small_files(size_bytes: int) -> Iterator[None]:
    """Let writes beyond this size fail, as on a full disk."""
    with _limit(resource.RLIMIT_FSIZE, size_bytes):
        yield


@contextmanager
def _limit(what: int, soft: int) -> Iterator[None]:
    before = resource.getrlimit(what)
    resource.setrlimit(what, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(what, before)
