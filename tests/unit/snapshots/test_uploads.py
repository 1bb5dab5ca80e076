"""The end of a snapshot's uploads: no file that another thread still writes is left."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from statelib.errors import RetryableError
from statelib.snapshots.uploads.streams import Uploads
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointedStateScope, CheckpointOutputStream, CheckpointStreamFactory
from statelib.testing.checkpoint_chain import CheckpointChain
from statelib.testing.faulty_streams import FaultyStreams, undisturbed

PATIENCE_S = 60.0
"""The time that a test waits for an event before it fails."""
FINISH = 2
"""The number of the last operation on a stream: it is created, written and finished."""


def test_a_file_that_is_still_being_written_when_the_snapshot_fails_is_removed(tmp_path: Path) -> None:
    """Requirement R44: the failure is raised only after the writing thread has ended."""
    chain = CheckpointChain(tmp_path)
    finishing, may_finish = threading.Event(), threading.Event()

    def before(operation: int) -> None:
        if operation == FINISH:
            finishing.set()
            assert may_finish.wait(PATIENCE_S)

    def fail(uploads: Uploads, thread: ThreadPoolExecutor) -> None:
        with uploads:
            thread.submit(uploads.write, lambda stream: stream.write(b"x" * 5000))
            assert finishing.wait(PATIENCE_S)
            threading.Timer(0.3, may_finish.set).start()
            raise OSError("disk on fire")

    with ThreadPoolExecutor(1) as thread, pytest.raises(OSError, match="disk on fire"):
        fail(Uploads(FaultyStreams(chain.streams(1), before), CloseableRegistry()), thread)
    assert finishing.is_set()
    assert chain.files() == set()


class CountedClosings(FaultyStreams):
    """Streams that count how often each was closed without its handle being taken."""

    def __init__(self, streams: CheckpointStreamFactory) -> None:
        super().__init__(streams, undisturbed)
        self.closings = 0

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointOutputStream:
        stream = super().create_stream(scope)
        close = stream.close

        def counted() -> None:
            self.closings += 1
            close()

        stream.close = counted
        return stream


def test_a_finished_stream_is_no_longer_registered(tmp_path: Path) -> None:
    """Requirement R104: a later cancel does not affect it."""
    streams = CountedClosings(CheckpointChain(tmp_path).streams(1))
    with Uploads(streams, CloseableRegistry()) as uploads:
        uploads.write(lambda stream: stream.write(b"x" * 5000))
        uploads.stop()
        assert streams.closings == 0
        with pytest.raises(RetryableError, match="cancelled"):
            uploads.complete()
