"""The clock of storage: the calls that it measures; threads that wait at the same time count once."""

import threading
from pathlib import Path

import pytest

from statelib.errors import RetryableError
from statelib.storage.ports.views import CheckpointedStateScope
from statelib.storage.wrappers.timed_streams import StorageClock, TimedStreams
from statelib.testing.checkpoint_chain import CheckpointChain
from statelib.testing.faulty_streams import FaultyStreams

SHARED = CheckpointedStateScope.SHARED


class Time:
    """A clock whose nanoseconds pass only by calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        monkeypatch.setattr("statelib.storage.wrappers.timed_streams.time.monotonic_ns", lambda: self.now_ns)

    def passes(self, ms: int) -> None:
        self.now_ns += ms * 1_000_000


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def test_intervals_are_added_up_without_the_time_between_them(time: Time) -> None:
    clock = StorageClock()
    for ms in (3, 4):
        with clock.running():
            time.passes(ms)
        time.passes(100)
    assert clock.total_ms == 7


def test_concurrent_calls_count_once(time: Time) -> None:
    clock = StorageClock()
    with clock.running():
        time.passes(1)
        with clock.running():
            time.passes(2)
        time.passes(3)
    assert clock.total_ms == 6


def test_a_failed_call_counts(time: Time) -> None:
    clock = StorageClock()

    def fail() -> None:
        with clock.running():
            time.passes(5)
            raise RetryableError("lost", kind="storage-io")

    with pytest.raises(RetryableError):
        fail()
    assert clock.total_ms == 5


def test_streams_are_timed_from_opening_to_the_last_flush(time: Time, tmp_path: Path) -> None:
    storage = FaultyStreams(CheckpointChain(tmp_path).streams(1), lambda _call: time.passes(10))
    streams = TimedStreams(storage)
    stream = streams.create_stream(SHARED)
    time.passes(1_000)
    stream.write(b"x" * 100)
    assert stream.position() == 100
    written = stream.close_and_get_handle()
    opened = streams.clock.total_ms
    assert (opened > 0, opened % 10, written.size_bytes) == (True, 0, 100)
    streams.flush()
    assert streams.reusable([written]) == {written.handle}
    streams.discard(written.handle)
    assert opened <= streams.clock.total_ms < 1_000


def test_the_clock_can_be_shared_between_threads() -> None:
    clock, start = StorageClock(), threading.Barrier(4)

    def work() -> None:
        start.wait()
        for _ in range(2_000):
            with clock.running():
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock._running == 0
