"""The incremental strategy beyond the contract: what is written again, what is referred to, what survives a failure."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, IncrementalRemoteKeyedStateHandle
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.restore.live.keyed import restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import EMPTY, SnapshotResult, take_snapshot
from statelib.snapshots.uploads.previous import PreviousSnapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.testing.checkpoint_chain import CheckpointChain, entries_of, files_of, previous_of
from statelib.testing.faulty_streams import FaultyStreams
from statelib.testing.keyed_samples import all_entries, fill, put, sample_schema

UID = "5a7b0000-0000-0000-0000-000000000000"
RANGE = KeyGroupRange(0, 127)


class Subtask:
    """One backend and its strategy, on a chain of checkpoints."""

    def __init__(self, chain: CheckpointChain, backend: RocksDBKeyedStateBackend, strategy) -> None:
        self.chain, self.backend, self.strategy = chain, backend, strategy

    def take(self, number: int) -> SnapshotResult:
        return take_snapshot(self.strategy, CheckpointId(number), self.chain.streams(number), CloseableRegistry())

    def source(self, number: int, result: SnapshotResult) -> RestoreSource:
        return self.chain.source(number, result, self.backend)

    def close(self) -> None:
        self.strategy.close()
        self.backend.close()


@pytest.fixture
def chain(tmp_path: Path) -> CheckpointChain:
    return CheckpointChain(tmp_path / "storage")


@pytest.fixture
def subtask(chain: CheckpointChain, tmp_path: Path) -> Iterator[Subtask]:
    backend = RocksDBKeyedStateBackend(sample_schema(), RANGE, str(tmp_path / "backend"), UID)
    fill(backend, 60)
    subtask = Subtask(chain, backend, RocksDBIncrementalSnapshotStrategy(backend, UID))
    yield subtask
    subtask.close()


def restored(chain: CheckpointChain, source: RestoreSource, directory: Path, previous: PreviousSnapshot) -> Subtask:
    backend = restore_rocksdb(source.schema, RANGE, [source], str(directory), UID)
    return Subtask(chain, backend, RocksDBIncrementalSnapshotStrategy(backend, UID, previous))


def handle_of(result: SnapshotResult) -> IncrementalRemoteKeyedStateHandle:
    assert isinstance(result.keyed, IncrementalRemoteKeyedStateHandle)
    return result.keyed


def sst(result: SnapshotResult) -> dict[str, Any]:
    return dict(handle_of(result).shared)


def test_immutable_files_are_shared_and_the_rest_is_exclusive(subtask: Subtask) -> None:
    handle = handle_of(subtask.take(1))
    assert {name.rpartition(".")[2] for name, _ in handle.shared} == {"sst"}
    assert {name.partition("-")[0] for name, _ in handle.private} == {"CURRENT", "MANIFEST", "OPTIONS"}
    for _, stream in handle.shared:
        assert isinstance(stream, FileStateHandle)
        assert stream.path.startswith(f"{subtask.chain.directory}/shared/")
    assert not [stream for _, stream in handle.private if isinstance(stream, FileStateHandle)]


def test_unchanged_files_are_referred_to_once_their_snapshot_completed(subtask: Subtask, tmp_path: Path) -> None:
    first = subtask.take(1)
    assert first.reused == ()
    assert handle_of(first).checkpointed_size_bytes == sum(w.size_bytes for w in first.streams)
    put(subtask.backend, "means", ["key-1"], [7.5])
    assert subtask.take(2).reused == (), "nobody said that the first completed"
    subtask.strategy.notify_checkpoint_complete(CheckpointId(1))
    before = subtask.chain.files()
    third = subtask.take(3)
    assert {w.handle for w in third.reused} == set(sst(first).values())
    assert sst(first).items() < sst(third).items()
    new = subtask.chain.files() - before
    assert sum(Path(uri.removeprefix("file://")).stat().st_size for uri in new) == sum(
        w.size_bytes for w in third.streams
    )
    assert handle_of(third).checkpointed_size_bytes == sum(w.size_bytes for w in third.streams)
    assert files_of(subtask.source(3, third)) - new == {str(w.handle.path) for w in third.reused}
    assert entries_of(subtask.source(3, third), tmp_path / "read") == all_entries(subtask.backend)


def test_a_snapshot_without_changes_writes_no_sst(subtask: Subtask) -> None:
    first = subtask.take(1)
    subtask.strategy.notify_checkpoint_complete(CheckpointId(1))
    second = subtask.take(2)
    assert sst(first) == sst(second)
    assert len(second.streams) == 1 + len(handle_of(second).private)


def test_files_of_an_aborted_snapshot_are_not_referred_to(subtask: Subtask) -> None:
    first = subtask.take(1)
    subtask.strategy.notify_checkpoint_complete(CheckpointId(1))
    put(subtask.backend, "means", ["key-1"], [7.5])
    second = subtask.take(2)
    subtask.strategy.notify_checkpoint_aborted(CheckpointId(2))
    third = subtask.take(3)
    assert {w.handle for w in third.reused} == set(sst(first).values())
    assert set(sst(third)) == set(sst(second))
    assert sst(third) != sst(second)


def test_a_file_that_a_restore_verified_is_not_read_again_unless_it_was_replaced(
    subtask: Subtask, chain: CheckpointChain, tmp_path: Path
) -> None:
    """The recorded XXH3 is wrong, so reading a file would be detected."""
    first = subtask.take(1)
    source = subtask.source(1, first)
    previous = previous_of(source)
    files = {name: replace(written, xxh3=1) for name, written in previous.files.items()}
    again = restored(chain, source, tmp_path / "again", replace(previous, files=files))
    second = again.take(2)
    assert {w.handle for w in second.reused} == set(sst(first).values())
    victim = min((tmp_path / "again" / "db").glob("*.sst"))
    replaced(victim)
    third = again.take(3)
    assert {name for name, stream in sst(third).items() if stream != sst(first)[name]} == {victim.name}
    again.close()


def test_a_backend_restored_in_place_refers_to_the_restored_files(
    subtask: Subtask, chain: CheckpointChain, tmp_path: Path
) -> None:
    first = subtask.take(1)
    source = subtask.source(1, first)
    again = restored(chain, source, tmp_path / "again", previous_of(source))
    put(again.backend, "means", ["key-1"], [7.5])
    second = again.take(2)
    assert {w.handle for w in second.reused} == set(sst(first).values())
    assert entries_of(again.source(2, second), tmp_path / "read") == all_entries(again.backend)
    again.close()


def test_no_file_of_a_full_snapshot_is_referred_to(subtask: Subtask, chain: CheckpointChain, tmp_path: Path) -> None:
    full = Subtask(chain, subtask.backend, RocksDBFullSnapshotStrategy(subtask.backend, UID))
    source = full.source(1, full.take(1))
    full.strategy.close()
    again = restored(chain, source, tmp_path / "again", previous_of(source))
    second = again.take(2)
    assert (second.reused, len(second.streams)) == ((), 1 + len(sst(second)) + len(handle_of(second).private))
    again.close()


def test_two_databases_restored_from_one_checkpoint_do_not_confuse_their_files(
    subtask: Subtask, chain: CheckpointChain, tmp_path: Path
) -> None:
    """Both continue with the same file number and make files of the same size: only the content differs."""
    source = subtask.source(1, subtask.take(1))
    one = restored(chain, source, tmp_path / "one", previous_of(source))
    put(one.backend, "means", ["key-1"], [1.25])
    theirs = one.take(2)
    other = restored(chain, source, tmp_path / "other", previous_of(one.source(2, theirs)))
    put(other.backend, "means", ["key-1"], [2.75])
    ours = other.take(3)
    (name,) = set(sst(theirs)) - dict(previous_of(source).files).keys()
    assert name in sst(ours)
    assert sst(ours)[name] != sst(theirs)[name]
    sizes = {s.size_bytes for s in (sst(ours)[name], sst(theirs)[name])}
    assert len(sizes) == 1, "otherwise this test proves nothing"
    assert {w.handle for w in ours.reused} == {w.handle for w in previous_of(source).files.values()}
    assert entries_of(other.source(3, ours), tmp_path / "read") == all_entries(other.backend)
    one.close()
    other.close()


@pytest.mark.parametrize("wrong", [{"size_bytes": 1}, {"crc32c": 1}, {"xxh3": 1}])
def test_a_file_of_the_same_name_with_other_bytes_is_written_again(
    subtask: Subtask, chain: CheckpointChain, tmp_path: Path, wrong: dict[str, int]
) -> None:
    source = subtask.source(1, subtask.take(1))
    previous = previous_of(source)
    lying = PreviousSnapshot(previous.checkpoint_id, {n: replace(w, **wrong) for n, w in previous.files.items()})
    again = restored(chain, source, tmp_path / "again", lying)
    for path in (tmp_path / "again" / "db").glob("*.sst"):
        replaced(path)
    assert again.take(2).reused == ()
    again.close()


def replaced(path: Path) -> None:
    """Replace the file by another one with the same bytes, which no restore has verified."""
    (copy := path.with_name("copy")).write_bytes(path.read_bytes())
    copy.replace(path)


def test_a_failed_snapshot_discards_its_own_files_and_no_other(subtask: Subtask, tmp_path: Path) -> None:
    first = subtask.take(1)
    subtask.strategy.notify_checkpoint_complete(CheckpointId(1))
    put(subtask.backend, "means", ["key-1"], [7.5])
    before = subtask.chain.files()
    counted = FaultyStreams(subtask.chain.streams(2), lambda _number: None)
    result = take_snapshot(subtask.strategy, CheckpointId(2), counted, CloseableRegistry())
    assert result.reused
    for written in result.streams:
        counted.discard(written.handle)
    assert subtask.chain.files() == before
    for failing in range(len(counted.operations)):

        def disk_on_fire(number: int, failing: int = failing) -> None:
            if number == failing:
                raise OSError("disk on fire")

        streams = FaultyStreams(subtask.chain.streams(2), disk_on_fire)
        with pytest.raises(OSError, match="disk on fire"):
            take_snapshot(subtask.strategy, CheckpointId(2), streams, CloseableRegistry())
        assert subtask.chain.files() == before
    assert len(entries_of(subtask.source(1, first), tmp_path / "read")["means"]) == 60


def test_a_failed_snapshot_is_no_base(subtask: Subtask) -> None:
    registry = CloseableRegistry()
    registry.close()
    with pytest.raises(Exception, match="cancelled"):
        take_snapshot(subtask.strategy, CheckpointId(1), subtask.chain.streams(1), registry)
    subtask.strategy.notify_checkpoint_complete(CheckpointId(1))
    assert subtask.take(2).reused == ()


def test_small_files_stay_inline_and_are_referred_to_as_well(subtask: Subtask, tmp_path: Path) -> None:
    chain = CheckpointChain(tmp_path / "inline", 1 << 20)
    inlined = Subtask(chain, subtask.backend, subtask.strategy)
    first = inlined.take(1)
    assert all(isinstance(stream, ByteStreamStateHandle) for stream in sst(first).values())
    subtask.strategy.notify_checkpoint_complete(CheckpointId(1))
    second = inlined.take(2)
    assert sst(first) == sst(second)
    assert chain.files() == set()
    assert entries_of(inlined.source(2, second), tmp_path / "read") == all_entries(subtask.backend)


def test_without_states_the_result_is_empty_whatever_the_base(tmp_path: Path, chain: CheckpointChain) -> None:
    schema = KeyedStateSchema(sample_schema().key_type, 128, ())
    backend = RocksDBKeyedStateBackend(schema, RANGE, str(tmp_path / "backend"), UID)
    base = PreviousSnapshot(CheckpointId(1), {})
    subtask = Subtask(chain, backend, RocksDBIncrementalSnapshotStrategy(backend, UID, base))
    assert subtask.take(2) is EMPTY
    assert chain.files() == set()
    subtask.close()
