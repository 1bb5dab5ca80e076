"""Streams written twice: the primary decides, the local copy never costs anything (requirements R108 to R114)."""

import logging
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statelib.errors import RetryableError, StatelibError
from statelib.model.handles import ByteStreamStateHandle, RelativeFileStateHandle
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from statelib.storage.local.streams import LocalStreams
from statelib.storage.ports.views import (
    CheckpointedStateScope,
    CheckpointOutputStream,
    CheckpointStreamFactory,
    WrittenStream,
)
from statelib.storage.wrappers.duplicating import DuplicatingCheckpointOutputStream, DuplicatingStreams
from statelib.testing.faulty_streams import FaultyStreams, Hook
from statelib.testing.memory_storage import MemoryStreamFactory

EXCLUSIVE = CheckpointedStateScope.EXCLUSIVE
PIECES = [b"one", b"two" * 100_000, b"", memoryview(b"three")]
WHOLE = b"".join(PIECES)


class Places:
    def __init__(self, root: Path, inline_threshold_bytes: int = 0) -> None:
        storage = FileSystemCheckpointStorage(str(root / "remote"), PipelineName("p"), inline_threshold_bytes)
        reference = storage.initialize_location(CheckpointId(1))
        self.remote = root / "remote" / "p" / "chk-1"
        self.local = root / "local"
        self.local.mkdir()
        self.primary: CheckpointStreamFactory = storage.resolve_checkpoint_storage_location(
            CheckpointId(1), reference, AttemptId("0" * 32), 0
        )
        self.secondary: CheckpointStreamFactory = LocalStreams(str(self.local))

    def both(self) -> DuplicatingStreams:
        return DuplicatingStreams(self.primary, self.secondary)

    def files(self) -> tuple[list[bytes], list[bytes]]:
        """Return the contents of the remote and of the local files."""
        remote, local = ([p.read_bytes() for p in sorted(d.glob("*"))] for d in (self.remote, self.local))
        return remote, local


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def fail_at(failing: int, raised: list[OSError] | None = None) -> Hook:
    def before(number: int) -> None:
        if number >= failing:
            error = OSError(f"disk on fire at {number}")
            if raised is not None:
                raised.append(error)
            raise error

    return before


def write_all(stream: CheckpointOutputStream) -> None:
    for piece in PIECES:
        stream.write(piece)


def written(stream: CheckpointOutputStream) -> WrittenStream:
    write_all(stream)
    return stream.close_and_get_handle()


def test_both_files_have_the_same_bytes_and_the_result_names_both(places: Places) -> None:
    stream = places.both().create_stream(EXCLUSIVE)
    write_all(stream)
    assert stream.position() == len(WHOLE)
    written = stream.close_and_get_handle()
    assert written.local_name == "stream-0"
    assert isinstance(written.handle, RelativeFileStateHandle)
    assert (written.size_bytes, written.handle.size_bytes) == (len(WHOLE), len(WHOLE))
    assert places.files() == ([WHOLE], [WHOLE])


def test_the_simple_provider_writes_only_the_primary_stream(places: Places) -> None:
    stream = places.primary.create_stream(EXCLUSIVE)
    write_all(stream)
    assert stream.close_and_get_handle().local_name is None
    assert places.files() == ([WHOLE], [])


def test_a_primary_that_cannot_be_opened_fails_the_snapshot(places: Places) -> None:
    places.primary = FaultyStreams(places.primary, fail_at(0))
    with pytest.raises(OSError, match="disk on fire"):
        places.both().create_stream(EXCLUSIVE)
    assert places.files() == ([], [])


@pytest.mark.parametrize("fault", ["missing", "a file", "hook"])
def test_a_secondary_that_cannot_be_opened_is_left_out(
    places: Places, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    if fault == "hook":
        places.secondary = FaultyStreams(places.secondary, fail_at(0))
    else:
        places.local.rmdir()
    if fault == "a file":
        places.local.write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        stream = places.both().create_stream(EXCLUSIVE)
    assert "Continue only with the primary stream." in caplog.text
    write_all(stream)
    assert stream.close_and_get_handle().local_name is None
    assert places.files()[0] == [WHOLE]


@pytest.mark.parametrize("failing", range(1, len(PIECES) + 1))
def test_a_secondary_stream_that_fails_does_not_disturb_the_primary(places: Places, failing: int) -> None:
    raised: list[OSError] = []
    faulty = FaultyStreams(places.secondary, fail_at(failing, raised))
    stream = DuplicatingCheckpointOutputStream(places.primary.create_stream(EXCLUSIVE), faulty.create_stream(EXCLUSIVE))
    write_all(stream)
    assert len(faulty.operations) == failing + 1, "it is not used after its first failure"
    assert places.files()[1] == []
    assert stream.close_and_get_primary_handle().size_bytes == len(WHOLE)
    for _ in range(2):
        with pytest.raises(RetryableError) as caught:
            stream.close_and_get_secondary_handle()
        assert caught.value.kind == "local-copy-failed"
        assert caught.value.__cause__ is raised[0]
    assert places.files() == ([WHOLE], [])


@pytest.mark.parametrize("failing", range(1, len(PIECES) + 2))
def test_the_result_of_a_failed_secondary_is_remote_only(places: Places, failing: int) -> None:
    places.secondary = FaultyStreams(places.secondary, fail_at(failing))
    stream = places.both().create_stream(EXCLUSIVE)
    write_all(stream)
    assert stream.close_and_get_handle().local_name is None
    assert places.files() == ([WHOLE], [])


class FlippingStream:
    """A stream that writes each piece with its first byte changed."""

    def __init__(self, stream: CheckpointOutputStream) -> None:
        self._stream = stream
        self.position = stream.position
        self.close = stream.close
        self.close_and_get_handle = stream.close_and_get_handle

    def write(self, data: bytes | memoryview) -> None:
        changed = bytearray(data)
        changed[:1] = bytes(255 - byte for byte in changed[:1])
        self._stream.write(bytes(changed))


def test_a_copy_with_other_bytes_of_the_same_length_is_rejected(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    """Requirement R114: both streams are compared by their size and checksum before the copy is named."""
    secondary = FlippingStream(places.secondary.create_stream(EXCLUSIVE))
    stream = DuplicatingCheckpointOutputStream(places.primary.create_stream(EXCLUSIVE), secondary)
    with caplog.at_level(logging.WARNING):
        result = written(stream)
    assert result.local_name is None
    assert "in the local copy, found" in caplog.text
    assert places.files()[0] == [WHOLE]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limit the size of every file by the operating system."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_local_disk_loses_only_the_local_copy(places: Places) -> None:
    primary = MemoryStreamFactory("m", 1 << 20)
    stream = DuplicatingCheckpointOutputStream(
        primary.create_stream(EXCLUSIVE), places.secondary.create_stream(EXCLUSIVE)
    )
    with largest_file(1000):
        write_all(stream)
    handle = stream.close_and_get_primary_handle().handle
    assert isinstance(handle, ByteStreamStateHandle)
    assert handle.data == WHOLE
    with pytest.raises(RetryableError) as caught:
        stream.close_and_get_secondary_handle()
    assert isinstance(caught.value.__cause__, RetryableError)
    assert caught.value.__cause__.kind == "storage-full"
    assert places.files() == ([], [])


@pytest.mark.parametrize("ahead", ["primary", "secondary"])
def test_streams_at_different_positions_are_not_paired(places: Places, ahead: str) -> None:
    primary, secondary = places.primary.create_stream(EXCLUSIVE), places.secondary.create_stream(EXCLUSIVE)
    (primary if ahead == "primary" else secondary).write(b"x")
    stream = DuplicatingCheckpointOutputStream(primary, secondary)
    write_all(stream)
    assert stream.close_and_get_handle().local_name is None
    remote, local = places.files()
    assert remote == [b"x" + WHOLE if ahead == "primary" else WHOLE]
    assert local == []


@pytest.mark.parametrize("failing", range(1, len(PIECES) + 2))
def test_a_failing_primary_leaves_neither_file(places: Places, failing: int) -> None:
    places.primary = FaultyStreams(places.primary, fail_at(failing))
    stream = places.both().create_stream(EXCLUSIVE)
    with pytest.raises(OSError, match="disk on fire"):
        written(stream)
    stream.close()
    assert places.files() == ([], [])


def test_closing_from_another_thread_ends_writing_and_leaves_no_file(places: Places) -> None:
    stream = places.both().create_stream(EXCLUSIVE)
    stream.write(WHOLE)
    closer = threading.Thread(target=stream.close)
    closer.start()
    closer.join()
    attempts: list[Callable[[], object]] = [lambda: stream.write(b"x"), stream.close_and_get_handle]
    for attempt in attempts:
        with pytest.raises(StatelibError) as caught:
            attempt()
        assert caught.value.kind == "cancelled"
    assert places.files() == ([], [])


def test_inline_state_needs_no_copy(tmp_path: Path) -> None:
    places = Places(tmp_path, inline_threshold_bytes=1 << 20)
    stream = places.both().create_stream(EXCLUSIVE)
    write_all(stream)
    written = stream.close_and_get_handle()
    assert isinstance(written.handle, ByteStreamStateHandle)
    assert written.local_name is None
    assert places.files() == ([], [])


def test_a_stream_without_bytes_leaves_no_local_file(places: Places) -> None:
    places.both().create_stream(EXCLUSIVE).close()
    places.both().create_stream(EXCLUSIVE).close_and_get_handle()
    assert places.files() == ([], [])


def test_discarding_removes_the_remote_file(places: Places) -> None:
    both = places.both()
    stream = both.create_stream(EXCLUSIVE)
    stream.write(b"x")
    both.discard(stream.close_and_get_handle().handle)
    assert places.files() == ([], [b"x"])
    places.secondary.discard(RelativeFileStateHandle("stream-0", 1))
    places.secondary.discard(RelativeFileStateHandle("stream-0", 1))
    assert places.files() == ([], [])
    with pytest.raises(StatelibError) as caught:
        places.secondary.discard(RelativeFileStateHandle("../stream-0", 1))
    assert caught.value.kind == "foreign-file"
