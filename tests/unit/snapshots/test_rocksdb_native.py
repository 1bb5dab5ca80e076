"""Native snapshots of RocksDB: what is written first, and what becomes of the upload threads."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.errors import RetryableError
from statelib.formats.keyed.header import encode_header
from statelib.model.handles import IncrementalRemoteKeyedStateHandle, RelativeFileStateHandle
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.native import NativeSnapshots
from statelib.snapshots.strategy import take_snapshot
from statelib.snapshots.uploads.streams import Uploads
from statelib.snapshots.uploads.threads import UploadThreads
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointedStateScope, CheckpointOutputStream
from statelib.testing.checkpoint_chain import CheckpointChain
from statelib.testing.keyed_samples import fill, sample_schema

PATIENCE_S = 60.0
"""The time that a test waits for an event before it fails."""


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RocksDBKeyedStateBackend]:
    backend = RocksDBKeyedStateBackend(sample_schema(), KeyGroupRange(0, 127), str(tmp_path / "backend"), "uid")
    fill(backend, 60)
    yield backend
    backend.close()


def upload_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("statelib-upload")}


@pytest.mark.parametrize("strategy_of", [RocksDBFullSnapshotStrategy, RocksDBIncrementalSnapshotStrategy])
def test_the_meta_stream_is_written_first(
    strategy_of: Callable[[RocksDBKeyedStateBackend, str], RocksDBFullSnapshotStrategy],
    backend: RocksDBKeyedStateBackend,
    tmp_path: Path,
) -> None:
    """Requirement R39: a reader that has only the beginning of a snapshot can list its states."""
    strategy = strategy_of(backend, "uid")
    chain = CheckpointChain(tmp_path / "storage")
    result = take_snapshot(strategy, CheckpointId(1), chain.streams(1), CloseableRegistry())
    strategy.close()
    assert isinstance(result.keyed, IncrementalRemoteKeyedStateHandle)
    assert isinstance(result.keyed.meta, RelativeFileStateHandle)
    assert result.streams[0].handle == result.keyed.meta
    names = [s.handle.path for s in result.streams if isinstance(s.handle, RelativeFileStateHandle)]
    assert min(names, key=lambda path: int(path.rpartition("-")[2])) == result.keyed.meta.path
    assert len(encode_header(backend.schema, False)) == result.streams[0].size_bytes


def test_the_first_failure_ends_the_other_uploads(backend: RocksDBKeyedStateBackend, tmp_path: Path) -> None:
    """Requirement R115: an upload that would go on for ever is cancelled as soon as another one has failed."""
    native = NativeSnapshots(backend, "uid")
    waiting = threading.Event()
    deadline = time.monotonic() + PATIENCE_S

    def endless(stream: CheckpointOutputStream) -> None:
        while time.monotonic() < deadline:
            stream.write(b"x" * 1024)
            waiting.set()
            time.sleep(0.001)

    def work(uploads: Uploads, name: str) -> str:
        if name == "failing":
            assert waiting.wait(PATIENCE_S)
            raise RetryableError("the disk is on fire", kind="test")
        uploads.write(endless)
        return "wrote all it wanted to"

    ended: list[str] = []

    def upload(name: str, _path: str) -> None:
        try:
            ended.append(work(uploads, name))
        except RetryableError as error:
            ended.append(error.kind)
            raise

    chain = CheckpointChain(tmp_path / "storage")
    with (
        pytest.raises(RetryableError, match="on fire"),
        Uploads(chain.streams(1), CloseableRegistry()) as uploads,
    ):
        native.in_parallel(uploads, upload, [("endless", ""), ("failing", "")])
    native.close()
    assert sorted(ended) == ["cancelled", "test"]


@pytest.mark.parametrize("strategy_of", [RocksDBFullSnapshotStrategy, RocksDBIncrementalSnapshotStrategy])
def test_closing_a_strategy_ends_its_upload_threads(
    strategy_of: Callable[[RocksDBKeyedStateBackend, str], RocksDBFullSnapshotStrategy],
    backend: RocksDBKeyedStateBackend,
    tmp_path: Path,
) -> None:
    """Requirement R17."""
    before = upload_threads()
    strategy = strategy_of(backend, "uid")
    chain = CheckpointChain(tmp_path / "storage")
    take_snapshot(strategy, CheckpointId(1), chain.streams(1), CloseableRegistry())
    assert upload_threads() > before, "the snapshot was uploaded by threads of its own"
    strategy.close()
    assert upload_threads() == before


def test_closing_does_not_wait_for_an_abandoned_snapshot(tmp_path: Path) -> None:
    before, threads = upload_threads(), UploadThreads()
    working, may_end = threading.Event(), threading.Event()

    def work(_name: str, _source: None) -> bool:
        working.set()
        return may_end.wait(PATIENCE_S)

    def run() -> None:
        with Uploads(CheckpointChain(tmp_path).streams(1), CloseableRegistry()) as uploads:
            threads.run(uploads, work, [("file", None)])

    snapshot = threading.Thread(target=run)
    snapshot.start()
    assert working.wait(PATIENCE_S)
    threads.close()
    assert snapshot.is_alive(), "it is left alone"
    may_end.set()
    snapshot.join(PATIENCE_S)
    for thread in upload_threads() - before:
        thread.join(PATIENCE_S)
    assert upload_threads() == before, "its threads end by themselves"


def test_an_empty_file_is_uploaded_like_any_other(tmp_path: Path) -> None:
    """Requirement R61."""
    (tmp_path / "empty").touch()
    chain = CheckpointChain(tmp_path / "storage")
    with Uploads(chain.streams(1), CloseableRegistry()) as uploads:
        stored = uploads.write_file(str(tmp_path / "empty"), "empty", CheckpointedStateScope.EXCLUSIVE)
        assert uploads.complete() == (stored,)
    assert stored.size_bytes == 0


def test_a_full_snapshot_shares_no_file(backend: RocksDBKeyedStateBackend, tmp_path: Path) -> None:
    """Requirements R37 and R38: nothing is shared with a later one, and nothing of an earlier one is referred to."""
    strategy = RocksDBFullSnapshotStrategy(backend, "uid")
    chain = CheckpointChain(tmp_path / "storage")
    seen: set[object] = set()
    for number in (1, 2):
        result = take_snapshot(strategy, CheckpointId(number), chain.streams(number), CloseableRegistry())
        strategy.notify_checkpoint_complete(CheckpointId(number))
        assert isinstance(result.keyed, IncrementalRemoteKeyedStateHandle)
        assert result.keyed.shared == ()
        assert result.reused == ()
        assert {handle for _, handle in result.keyed.private} < {written.handle for written in result.streams}
        files = {f"chk-{number}/{handle.path}" for _, handle in result.keyed.private if hasattr(handle, "path")}
        assert len(files) == len(result.keyed.private)
        assert not files & seen
        seen |= files
    strategy.close()
