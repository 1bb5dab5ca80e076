"""The output stream of a checkpoint: small state stays inline, the rest spills into a file."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Protocol, runtime_checkable

from statelib.crash_points import crash_point
from statelib.errors import InvalidRequestError, RetryableError, StatelibError
from statelib.model.handles import ByteStreamStateHandle, StreamStateHandle
from statelib.storage.views import WrittenStream
from statelib.wire.checksum import ContentHash

_CHUNK_BYTES = 4 << 20
"""Most that is written between two looks at whether the stream was cancelled."""
_BUFFER_BYTES = 256 << 10
"""Writes smaller than this are gathered once the stream has a file."""


class SpilledFile(Protocol):
    """A new file that nobody else writes."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...
    def finish(self) -> StreamStateHandle:
        """Make it durable, close it, say how to find it."""
        ...

    def drop(self) -> None:
        """Close and remove it."""
        ...


@runtime_checkable
class InterruptibleFile(SpilledFile, Protocol):
    """A file whose finishing takes long enough to be worth ending."""

    def interrupt(self) -> None:
        """Make a running ``finish`` raise RetryableError (``cancelled``) soon. Called from any thread."""
        ...


class _Phase(Enum):
    OPEN = "open"
    FINISHED = "finished"
    DROPPED = "dropped"


class CheckpointStream:
    """Bytes of one piece of state. One thread writes; any thread may close, which ends the writing.

    ``spill`` opens the file when more than ``inline_threshold_bytes`` come together; it is given
    the size that is needed. After any failure nothing of the stream is left (R106, R107).
    """

    def __init__(self, name: str, inline_threshold_bytes: int, spill: Callable[[int], SpilledFile]) -> None:
        self._name = name
        self._capacity = inline_threshold_bytes
        self._spill = spill
        self._lock = threading.Lock()
        self._phase = _Phase.OPEN
        self._buffer = bytearray()
        self._file: SpilledFile | None = None
        self._position = 0
        self._content = ContentHash()

    def position(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, data: bytes | memoryview) -> None:
        """Raises RetryableError (``cancelled``) when the stream was closed, before or meanwhile."""
        view = memoryview(data).cast("B")
        if not view:
            self._append(view)
        for start in range(0, len(view), _CHUNK_BYTES):
            self._append(view[start : start + _CHUNK_BYTES])

    def close_and_get_handle(self) -> WrittenStream:
        """Durable when it returns. Nothing written gives an inline handle of no bytes (R100)."""
        with self._working():
            if self._file is None:
                data = bytes(self._buffer)
                handle: StreamStateHandle = ByteStreamStateHandle(self._name, data)
                self._content.update(data)
            else:
                self._flush(self._file)
                handle = self._file.finish()
            self._phase = _Phase.FINISHED
            self._buffer.clear()
            return WrittenStream(handle, self._position, self._content.crc32c, self._content.xxh3)

    def close(self) -> None:
        """Drop the data, unless the handle was taken; a second call does nothing."""
        file = self._file
        if isinstance(file, InterruptibleFile):
            file.interrupt()  # before the lock, which a thread that sends the file holds
        with self._lock:
            if self._phase is _Phase.OPEN:
                self._drop()

    def _append(self, chunk: memoryview) -> None:
        with self._working():
            self._position += len(chunk)
            if len(self._buffer) + len(chunk) <= self._capacity:
                self._buffer += chunk
                return
            if self._file is None:
                self._file = self._spill(self._position)
                crash_point("stream: spilled")
                self._capacity = _BUFFER_BYTES
            self._flush(self._file)
            if len(chunk) < _BUFFER_BYTES:
                self._buffer += chunk
            else:
                self._put(self._file, chunk)

    def _flush(self, file: SpilledFile) -> None:
        if self._buffer:
            self._put(file, self._buffer)
            self._buffer = bytearray()

    def _put(self, file: SpilledFile, data: bytearray | memoryview) -> None:
        file.write(data)
        self._content.update(data)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Hold an open stream; whatever goes wrong drops it before the error goes on."""
        with self._lock:
            if self._phase is _Phase.FINISHED:
                raise InvalidRequestError(f"stream {self._name}: its handle was taken already", kind="stream-finished")
            if self._phase is _Phase.DROPPED:
                raise RetryableError(f"stream {self._name} was closed, its data is gone", kind="cancelled")
            try:
                yield
            except BaseException as error:
                self._drop_after(error)
                raise

    def _drop_after(self, error: BaseException) -> None:
        try:
            self._drop()
        except StatelibError as second:
            error.add_note(f"also while dropping the stream: {second}")

    def _drop(self) -> None:
        self._phase = _Phase.DROPPED
        self._buffer = bytearray()
        file, self._file = self._file, None
        if file is not None:
            file.drop()
