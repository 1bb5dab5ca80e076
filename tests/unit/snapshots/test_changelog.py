"""The changelog strategy beyond the contract: what the base is, when the log ends, what is written again."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.errors import CorruptStateError
from statelib.model.handles import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandleImpl,
    ChangelogStateHandleStreamImpl,
    FileStateHandle,
    log_streams,
)
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.changelog import ChangelogSnapshotStrategy, MaterializationLimits
from statelib.snapshots.strategy import SnapshotResult, take_snapshot
from statelib.snapshots.uploads.previous import previous_changelog
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointedStateScope
from statelib.testing.checkpoint_chain import CheckpointChain, changelog_of, entries_of
from statelib.testing.keyed_samples import all_entries, fill, put, sample_schema

UID = "5a7b0000-0000-0000-0000-000000000000"
LIMITS = MaterializationLimits(10_000, 3)


class Subtask:
    """A heap backend with a log and its strategy, on a chain of checkpoints."""

    def __init__(self, chain: CheckpointChain, limits: MaterializationLimits = LIMITS, remembered: int = 1 << 20):
        self.chain = chain
        self.backend = ChangelogKeyedStateBackend(
            HeapKeyedStateBackend(sample_schema(), KeyGroupRange(0, 127)), remembered
        )
        fill(self.backend, 60)
        whole = CanonicalSnapshotStrategy(self.backend.inner, scope=CheckpointedStateScope.SHARED)
        self.strategy = ChangelogSnapshotStrategy(self.backend, UID, whole, limits)

    def take(self, number: int) -> SnapshotResult:
        return take_snapshot(self.strategy, CheckpointId(number), self.chain.streams(number), CloseableRegistry())

    def complete(self, number: int) -> None:
        self.strategy.notify_checkpoint_complete(CheckpointId(number))

    def change(self, value: float) -> None:
        put(self.backend, "means", ["key-1"], [value])

    def log_of(self, number: int) -> int:
        """Take a snapshot, assert that it is complete, and return the number of parts of its log."""
        result = self.take(number)
        source = self.chain.source(number, result, self.backend)
        assert entries_of(source, Path("none")) == all_entries(self.backend)
        return len(handle_of(result).log)


def handle_of(result: SnapshotResult) -> ChangelogStateBackendHandleImpl:
    assert isinstance(result.keyed, ChangelogStateBackendHandleImpl)
    return result.keyed


@pytest.fixture
def chain(tmp_path: Path) -> CheckpointChain:
    return CheckpointChain(tmp_path / "storage")


@pytest.fixture
def subtask(chain: CheckpointChain) -> Iterator[Subtask]:
    subtask = Subtask(chain)
    yield subtask
    subtask.strategy.close()
    subtask.backend.close()


def test_nothing_is_continued_before_a_snapshot_completed(subtask: Subtask) -> None:
    assert subtask.log_of(1) == 0
    subtask.change(1.0)
    second = subtask.take(2)
    assert (handle_of(second).log, second.reused) == ((), ())
    subtask.complete(1)
    assert subtask.log_of(3) == 1


def test_the_log_of_an_aborted_snapshot_is_written_again(subtask: Subtask) -> None:
    subtask.take(1)
    subtask.complete(1)
    subtask.change(1.0)
    second = subtask.take(2)
    subtask.strategy.notify_checkpoint_aborted(CheckpointId(2))
    subtask.change(2.0)
    third = subtask.take(3)
    assert len(handle_of(third).log) == 1
    assert not {*log_streams(handle_of(second))} & {*log_streams(handle_of(third))}
    subtask.complete(2)
    assert subtask.log_of(4) == 1, "what was aborted cannot complete"


def test_a_savepoint_and_an_older_snapshot_do_not_move_the_base(subtask: Subtask) -> None:
    for number in (1, 2, 3):
        subtask.change(float(number))
        subtask.take(number)
        subtask.complete(number)
    subtask.complete(2)
    subtask.complete(77)
    subtask.change(9.0)
    fourth = subtask.take(4)
    assert len(handle_of(fourth).log) == 3


def test_every_stream_is_shared_and_what_is_referred_to_is_not_written(subtask: Subtask) -> None:
    first = subtask.take(1)
    subtask.complete(1)
    subtask.change(1.0)
    second = subtask.take(2)
    assert second.reused == first.streams
    assert len(second.streams) == 1
    for written in (*first.streams, *second.streams):
        assert isinstance(written.handle, FileStateHandle)
        assert written.handle.path.startswith(f"{subtask.chain.directory}/shared/")
    source = subtask.chain.source(2, second, subtask.backend)
    previous = changelog_of(source)
    assert previous is not None
    assert {w.handle for w in previous.streams} == {w.handle for w in (*second.streams, *second.reused)}
    assert previous_changelog(handle_of(second), {}) is None, "a file without a checksum is not referred to"


def test_the_log_ends_by_its_number_of_parts(subtask: Subtask) -> None:
    results = []
    for number in range(1, 8):
        subtask.change(float(number))
        results.append(subtask.log_of(number))
        subtask.complete(number)
    assert results == [0, 1, 2, 3, 0, 1, 2]


def test_a_snapshot_without_changes_adds_nothing_and_never_ends_the_log(chain: CheckpointChain) -> None:
    subtask = Subtask(chain, MaterializationLimits(10_000, 1))
    for number, log in ((1, 0), (2, 1), (3, 1), (4, 1)):
        if number < 3:
            subtask.change(float(number))
        result = subtask.take(number)
        assert (len(handle_of(result).log), result.streams == ()) == (log, number > 2)
        subtask.complete(number)


def test_the_log_ends_by_its_size(chain: CheckpointChain) -> None:
    subtask = Subtask(chain, MaterializationLimits(100, 9))
    subtask.take(1)
    subtask.complete(1)
    subtask.change(1.0)
    assert subtask.log_of(2) == 0


@pytest.mark.parametrize("way", ["much", "load"])
def test_after_changes_that_the_log_dropped_the_state_is_written_as_a_whole(
    chain: CheckpointChain, way: str, tmp_path: Path
) -> None:
    subtask = Subtask(chain, remembered=1000)
    first = subtask.take(1)
    subtask.complete(1)
    if way == "much":
        fill(subtask.backend, 300)
    else:
        put(subtask.backend, "means", ["new"], [1.0])
        (rows,) = [rows for rows in subtask.backend.scan("means") if len(rows)]
        put(subtask.backend, "means", ["new"], [None])
        subtask.backend.load("means", rows.take(np.flatnonzero([b"new" in key for key in rows.keys.to_list()])))
    assert subtask.log_of(2) == 0
    subtask.complete(2)
    subtask.change(3.0)
    assert subtask.log_of(3) == 1
    assert first.keyed is not None


def test_one_change_of_a_key_is_logged(subtask: Subtask) -> None:
    subtask.take(1)
    subtask.complete(1)
    subtask.change(0.0)
    once = subtask.take(2)
    for number in range(200):
        subtask.change(float(number % 7))
    subtask.change(0.0)
    often = subtask.take(3)
    assert [w.size_bytes for w in often.streams] == [w.size_bytes for w in once.streams]


@pytest.mark.parametrize("stop", [0, 1, 20, -1])
def test_a_cut_part_is_an_error_where_no_checksum_guards_it(subtask: Subtask, stop: int) -> None:
    subtask.take(1)
    subtask.complete(1)
    subtask.change(1.0)
    second = subtask.take(2)
    source = subtask.chain.source(2, second, subtask.backend)
    handle = handle_of(second)
    (stream,) = log_streams(handle)
    (part,) = handle.log
    assert isinstance(part, ChangelogStateHandleStreamImpl)
    cut = ByteStreamStateHandle("cut", bytes(source.reader.read(stream))[:stop])
    log = (ChangelogStateHandleStreamImpl(part.key_group_range, ((cut, 0),), 0, 0, ""),)
    damaged = ChangelogStateBackendHandleImpl(handle.key_group_range, 0, handle.materialized, log, 1, 2)
    with pytest.raises(CorruptStateError, match="change log cut"):
        entries_of(type(source)(damaged, source.reader, source.schema, None), Path("none"))
