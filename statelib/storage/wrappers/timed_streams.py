"""Measuring how long a snapshot waits for its storage. A clock is read twice per call of the port."""

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from statelib.model.handles import StreamStateHandle
from statelib.storage.ports.views import (
    CheckpointedStateScope,
    CheckpointOutputStream,
    CheckpointStreamFactory,
    PhysicalFile,
    WrittenStream,
)


class StorageClock:
    """A clock that runs while at least one call is under way. Time in which several threads wait counts once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._since_ns = 0
        self._total_ns = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the clock run during the body."""
        with self._lock:
            if not self._running:
                self._since_ns = time.monotonic_ns()
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._total_ns += time.monotonic_ns() - self._since_ns

    @property
    def total_ms(self) -> int:
        """The measured time in milliseconds. A period counts when no call is under way any more."""
        with self._lock:
            return self._total_ns // 1_000_000


class TimedStreams:
    """A :class:`~statelib.storage.ports.views.CheckpointStreamFactory` around another one. ``clock`` runs while a
    stream is opened, written or completed, while the storage copies a file, and while :meth:`flush` runs. Local copies
    are not measured."""

    def __init__(self, streams: CheckpointStreamFactory) -> None:
        self._streams = streams
        self.clock = StorageClock()

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointOutputStream:
        with self.clock.running():
            return _TimedStream(self._streams.create_stream(scope), self.clock)

    def flush(self) -> Mapping[str, PhysicalFile]:
        with self.clock.running():
            return self._streams.flush()

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        return self._streams.reusable(earlier)

    def duplicate(self, original: StreamStateHandle, scope: CheckpointedStateScope) -> StreamStateHandle | None:
        with self.clock.running():
            return self._streams.duplicate(original, scope)

    def discard(self, handle: StreamStateHandle) -> None:
        self._streams.discard(handle)


class _TimedStream:
    def __init__(self, stream: CheckpointOutputStream, clock: StorageClock) -> None:
        self._stream = stream
        self._clock = clock

    def position(self) -> int:
        return self._stream.position()

    def write(self, data: bytes | memoryview) -> None:
        with self._clock.running():
            self._stream.write(data)

    def close_and_get_handle(self) -> WrittenStream:
        with self._clock.running():
            return self._stream.close_and_get_handle()

    def close(self) -> None:
        """Drop the data. This is not measured, because a thread that cancels does not wait for the storage."""
        self._stream.close()
