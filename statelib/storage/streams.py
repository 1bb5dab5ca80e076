"""The output stream of a checkpoint. Small state becomes an inline handle; larger state spills into a file."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Protocol, runtime_checkable

from statelib.crash_points import crash_point
from statelib.errors import InvalidRequestError, RetryableError, StatelibError
from statelib.model.handles import ByteStreamStateHandle, StreamStateHandle
from statelib.storage.ports.views import WrittenStream
from statelib.wire.checksum import ContentHash

_CHUNK_BYTES = 4 << 20
"""The most bytes that are written before the stream checks again whether it was cancelled."""
_BUFFER_BYTES = 256 << 10
"""After a stream has spilled, writes smaller than this are gathered in a buffer before they go to the file."""


class SpilledFile(Protocol):
    """A new file for the data of one stream. It has a single writer."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append ``data`` to the file."""
        ...

    def finish(self) -> StreamStateHandle:
        """Make the file durable, close it and return its handle."""
        ...

    def drop(self) -> None:
        """Close and remove the file."""
        ...


@runtime_checkable
class InterruptibleFile(SpilledFile, Protocol):
    """A file whose :meth:`finish` may take long, for example an upload, and can be interrupted."""

    def interrupt(self) -> None:
        """Make a running :meth:`finish` raise RetryableError (``cancelled``) soon. Any thread may call this."""
        ...


class _Phase(Enum):
    OPEN = "open"
    FINISHED = "finished"
    DROPPED = "dropped"


class CheckpointStream:
    """A :class:`~statelib.storage.ports.views.CheckpointOutputStream` that holds its data in memory until it spills.

    One thread writes; any thread may call :meth:`close`, which ends the writing.
    ``spill`` opens the file as soon as the stream is larger than ``inline_threshold_bytes``. Its argument is the size
    in bytes that the stream needs at that moment. After any failure nothing of the stream is left (R106, R107).
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
        """Return the number of bytes that were written so far."""
        return self._position

    def write(self, data: bytes | memoryview) -> None:
        """Append ``data``. Raises RetryableError (``cancelled``) if the stream was closed before or during the call,
        and InvalidRequestError (``stream-finished``) after its handle was taken."""
        view = memoryview(data).cast("B")
        if not view:
            self._append(view)
        for start in range(0, len(view), _CHUNK_BYTES):
            self._append(view[start : start + _CHUNK_BYTES])

    def close_and_get_handle(self) -> WrittenStream:
        """Complete the stream and return its handle. The data is durable when it returns. A stream to which nothing
        was written has an inline handle without bytes (R100)."""
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
        """Drop the data, unless the handle was taken. A second call does nothing."""
        file = self._file
        if isinstance(file, InterruptibleFile):
            file.interrupt()  # before the lock is taken: the thread that uploads the file holds the lock
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
        """Hold the lock and check that the stream is open. An error of the body drops the stream, then goes on."""
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
