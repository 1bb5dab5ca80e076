"""The contract of a snapshot strategy as tests.

The test class of a strategy subclasses :class:`SnapshotStrategySuite` and overrides ``make_backend`` and
``make_strategy``. The storage is real, by default a local directory; hooks make its operations fail or wait.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statelib.backends.keyed import KeyedStateBackend
from statelib.errors import RetryableError
from statelib.model.handles import ByteStreamStateHandle, KeyedStateHandle
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.restore.entries import iter_entries
from statelib.restore.plan import RestoreSource
from statelib.snapshots.execution import executed_snapshot
from statelib.snapshots.strategy import EMPTY, SnapshotResult, SnapshotStrategy, take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.kind import CheckpointStorage, StorageSettings
from statelib.storage.ports.views import (
    CheckpointedStateScope,
    CheckpointStreamFactory,
    FileMergingSettings,
    StateReader,
)
from statelib.storage.registry import PLACES
from statelib.testing.faulty_streams import FaultyStreams, Hook, undisturbed
from statelib.testing.interruptions import no_thread_starts
from statelib.testing.keyed_samples import all_entries, fill, owned, put, sample_schema
from statelib.testing.memory_storage import MemoryCheckpointStorage, MemoryReader

_RANGE = KeyGroupRange(32, 95)
_FIRST = CheckpointId(1)

Entries = dict[str, dict[bytes, bytes]]


MEMORY = "memory:"
"""The storage root that selects :class:`MemoryCheckpointStorage`."""


class Stage:
    """A strategy with its backend and the storage of one checkpoint. ``root``: the root of the storage, or
    :data:`MEMORY`."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        strategy: SnapshotStrategy[Any],
        root: str,
        merging: FileMergingSettings | None = None,
    ) -> None:
        storage: CheckpointStorage = (
            MemoryCheckpointStorage(PipelineName("suite"))
            if root == MEMORY
            else PLACES.storage(root, StorageSettings(PipelineName("suite"), 0))
        )
        worker = storage if merging is None else storage.to_file_merging_storage(merging)
        reference = storage.initialize_location(_FIRST)
        self.directory = reference.directory
        self.streams: CheckpointStreamFactory = worker.resolve_checkpoint_storage_location(
            _FIRST, reference, AttemptId("0" * 32), 0
        )
        self.backend = backend
        self.strategy = strategy
        self.registry = CloseableRegistry()
        self.operations: list[str] = []
        self._root = root
        self._initial_files = set(self._listed())

    def reader(self) -> StateReader:
        """Return a reader of the checkpoint, which may also read the files that several checkpoints share."""
        if self._root == MEMORY:
            return MemoryReader()
        return PLACES.kind(self._root).reader(self.directory, None, self.directory.rpartition("/")[0])

    def files(self) -> dict[str, int]:
        """Return the size of each file that was written since the location was made, by path."""
        return {path: size for path, size in self._listed().items() if path not in self._initial_files}

    def _listed(self) -> dict[str, int]:
        if self._root == MEMORY:
            return {}
        return {file.path: file.size_bytes for file in PLACES.kind(self._root).list_files(self._root)}

    def take(self, before: Hook = undisturbed, registry: CloseableRegistry | None = None) -> SnapshotResult:
        """Take a whole snapshot. :attr:`operations` then lists its operations on the storage."""
        streams = FaultyStreams(self.streams, before)
        self.operations = streams.operations
        return take_snapshot(self.strategy, _FIRST, streams, registry or self.registry)

    def rehearse(self) -> tuple[list[str], dict[str, int]]:
        """Take an undisturbed snapshot. Return its operations, and the files in the storage after it."""
        self.take()
        return self.operations, self.files()

    def read(self, result: SnapshotResult, scratch: Path) -> Entries:
        """Return the entries of a snapshot by the name of their state, read back from storage."""
        assert result.keyed is not None
        schema = self.backend.schema
        entries: Entries = {d.name: {} for d in schema.states}
        source = RestoreSource(result.keyed, self.reader(), schema, None)
        for state, rows in iter_entries(source, None, str(scratch)):
            entries[schema.states[state].name] |= zip(rows.keys.to_list(), rows.values.to_list(), strict=True)
        return entries


class SnapshotStrategySuite:
    """The tests that every implementation of :class:`~statelib.snapshots.strategy.SnapshotStrategy` passes."""

    handle_type: type[KeyedStateHandle]
    merging: FileMergingSettings | None = None
    """The settings of a storage that merges files. If None, the suite runs on a storage that merges none."""
    scopes = frozenset({CheckpointedStateScope.EXCLUSIVE})

    def make_backend(
        self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path
    ) -> KeyedStateBackend:
        """Return a new, empty backend. ``directory`` does not exist yet, and only this backend uses it."""
        raise NotImplementedError

    def make_strategy(self, backend: KeyedStateBackend) -> SnapshotStrategy[Any]:
        raise NotImplementedError

    @pytest.fixture
    def storage_root(self, tmp_path: Path) -> str:
        """Return the root of the storage: a directory, a URI, or :data:`MEMORY`. Override it to use other storage."""
        return str(tmp_path / "storage")

    @pytest.fixture
    def stage_of(self, tmp_path: Path, storage_root: str) -> Iterator[Callable[[KeyedStateSchema], Stage]]:
        stages: list[Stage] = []

        def make(schema: KeyedStateSchema) -> Stage:
            backend = self.make_backend(schema, _RANGE, tmp_path / "backend")
            stages.append(Stage(backend, self.make_strategy(backend), storage_root, self.merging))
            return stages[-1]

        yield make
        for stage in stages:
            stage.strategy.close()
            stage.backend.close()
        assert not (tmp_path / "backend").exists()

    @pytest.fixture
    def stage(self, stage_of: Callable[[KeyedStateSchema], Stage]) -> Stage:
        stage = stage_of(sample_schema())
        fill(stage.backend)
        return stage

    def test_a_snapshot_contains_every_entry(self, stage: Stage, tmp_path: Path) -> None:
        result = stage.take()
        assert type(result.keyed) is self.handle_type
        assert result.keyed.key_group_range == _RANGE
        assert stage.read(result, tmp_path / "scratch") == all_entries(stage.backend)

    def test_the_result_names_all_files_and_bytes(self, stage: Stage) -> None:
        result = stage.take()
        in_files = [s for s in result.streams if not isinstance(s.handle, ByteStreamStateHandle)]
        assert sum(s.size_bytes for s in in_files) == sum(stage.files().values())
        assert [s.size_bytes for s in result.streams] == [s.handle.size_bytes for s in result.streams]

    def test_streams_have_the_scopes_of_the_strategy(self, stage: Stage) -> None:
        streams = FaultyStreams(stage.streams, undisturbed)
        take_snapshot(stage.strategy, _FIRST, streams, stage.registry)
        assert set(streams.scopes) == self.scopes

    def test_notifications_of_any_checkpoint_are_accepted_and_change_no_snapshot(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        """The checkpoint may be one that another process took, and a notification may be repeated (R18)."""
        strategy, other_id = stage.strategy, CheckpointId(9)
        notifications = (strategy.notify_checkpoint_complete, strategy.notify_checkpoint_aborted)
        for notify in notifications * 2:
            notify(other_id)
        result = stage.take()
        assert stage.read(result, tmp_path / "scratch") == all_entries(stage.backend)
        for notify in reversed(notifications):
            notify(_FIRST)

    def test_without_registered_state_the_result_is_empty(self, stage_of: Callable[[KeyedStateSchema], Stage]) -> None:
        stage = stage_of(KeyedStateSchema(sample_schema().key_type, 128, ()))
        stage.registry.close()
        assert stage.take(_forbid) is EMPTY
        assert stage.files() == {}

    def test_registered_states_without_entries_are_not_empty(
        self, stage_of: Callable[[KeyedStateSchema], Stage], tmp_path: Path
    ) -> None:
        stage = stage_of(sample_schema())
        result = stage.take()
        assert stage.read(result, tmp_path / "scratch") == {d.name: {} for d in stage.backend.schema.states}

    def test_later_writes_are_not_in_the_snapshot(self, stage: Stage, tmp_path: Path) -> None:
        before = all_entries(stage.backend)
        resources = stage.strategy.prepare(_FIRST)
        fill(stage.backend, 100)
        keys = owned(stage.backend.schema, [f"key-{i}" for i in range(20)], _RANGE)
        put(stage.backend, "means", keys, [None] * len(keys))
        result = stage.strategy.run(resources, _FIRST, stage.streams, stage.registry)
        resources.release()
        assert all_entries(stage.backend) != before
        assert stage.read(result, tmp_path / "scratch") == before

    def test_the_backend_may_close_while_a_snapshot_runs(self, stage: Stage, tmp_path: Path) -> None:
        before = all_entries(stage.backend)
        resources = stage.strategy.prepare(_FIRST)
        stage.backend.close()
        with ThreadPoolExecutor(1) as thread:
            result = thread.submit(stage.strategy.run, resources, _FIRST, stage.streams, stage.registry).result()
        resources.release()
        resources.release()
        assert not (tmp_path / "backend").exists()
        assert stage.read(result, tmp_path / "scratch") == before

    def test_one_strategy_takes_many_snapshots(self, stage: Stage, tmp_path: Path) -> None:
        stage.take()
        fill(stage.backend, 400)
        assert stage.read(stage.take(), tmp_path / "scratch") == all_entries(stage.backend)

    def test_a_failure_at_any_operation_discards_everything(self, stage: Stage) -> None:
        operations, before = stage.rehearse()
        assert operations.count("create") == operations.count("finish") > 0
        for failing in range(len(operations)):
            with pytest.raises(OSError, match="disk on fire"):
                stage.take(_fail_at(failing))
            assert stage.files() == before, f"after a failure of operation {failing}"

    def test_a_snapshot_can_be_taken_after_a_failed_one(self, stage: Stage, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="disk on fire"):
            stage.take(_fail_at(1))
        assert stage.read(stage.take(), tmp_path / "scratch") == all_entries(stage.backend)

    def test_a_thread_that_cannot_start_leaves_nothing(self, stage: Stage) -> None:
        for number in range(100):
            snapshot = executed_snapshot(stage.strategy, _FIRST, stage.streams, stage.registry)
            with suppress(RuntimeError), no_thread_starts(number) as started, snapshot:
                assert 0 < started.count <= number
                return
            assert stage.files() == {}, f"after the start of thread {number} failed"
        raise AssertionError("the snapshot starts more than 100 threads")

    def test_cancelling_from_another_thread_leaves_nothing(self, stage: Stage) -> None:
        operations, before = stage.rehearse()
        for at in range(len(operations)):
            registry = CloseableRegistry()
            with pytest.raises(RetryableError) as caught:
                stage.take(_cancel_at(at, registry), registry)
            assert caught.value.kind == "cancelled"
            assert stage.files() == before, f"after cancelling before operation {at}, {operations[at]}"

    def test_a_snapshot_that_was_cancelled_before_it_began_writes_nothing(self, stage: Stage) -> None:
        stage.registry.close()
        with pytest.raises(RetryableError) as caught:
            stage.take(_forbid)
        assert caught.value.kind == "cancelled"

    def test_a_snapshot_leaves_nothing_in_the_registry(self, stage: Stage, tmp_path: Path) -> None:
        result, written = stage.take(), stage.files()
        stage.registry.close()
        assert stage.files() == written
        assert stage.read(result, tmp_path / "scratch") == all_entries(stage.backend)

    def test_statistics_are_those_of_the_stored_entries(self, stage: Stage, tmp_path: Path) -> None:
        stored = stage.read(stage.take(), tmp_path / "scratch")
        assert [s.total_entries for s in stage.backend.statistics()] == [len(e) for e in stored.values()]
        groups = np.bincount([key[0] for key in stored["means"]], minlength=128)[_RANGE.start : _RANGE.end + 1]
        assert stage.backend.statistics()[1].entries.tolist() == groups.tolist()


def _fail_at(failing: int) -> Hook:
    def before(number: int) -> None:
        if number == failing:
            raise OSError("disk on fire")

    return before


def _cancel_at(at: int, registry: CloseableRegistry) -> Hook:
    def before(number: int) -> None:
        if number == at:
            other = threading.Thread(target=registry.close)
            other.start()
            other.join()

    return before


def _forbid(number: int) -> None:
    raise AssertionError(f"operation {number} on the storage, expected none")
