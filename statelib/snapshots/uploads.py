"""The streams of one snapshot: all of them become handles, or none of them leaves a trace.

Source: requirements R14, R43, R44, R103 to R107, R115.
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Self

from statelib.errors import RetryableError, StatelibError
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.views import (
    CheckpointedStateScope,
    CheckpointOutputStream,
    CheckpointStreamFactory,
    WrittenStream,
)


class Uploads:
    """A context: what was written in it is discarded at its end, unless :meth:`complete` was called.

    ``registry`` cancels: closing it from any thread ends every open stream, and nothing new can be
    opened. :meth:`write` may be called by several threads; all of them must be done at the end."""

    def __init__(self, streams: CheckpointStreamFactory, registry: CloseableRegistry) -> None:
        self._streams = streams
        self._registry = registry
        self._open = CloseableRegistry()
        self._lock = threading.Lock()
        self._written: list[WrittenStream] = []
        self._completed = False

    def __enter__(self) -> Self:
        self._registry.register(self._open)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._completed:
            return
        self._registry.unregister(self._open)
        self._undo(self._open.close, error)
        for written in self._written:
            self._undo(partial(self._streams.discard, written.handle), error)

    def write(
        self,
        body: Callable[[CheckpointOutputStream], None],
        scope: CheckpointedStateScope = CheckpointedStateScope.EXCLUSIVE,
    ) -> WrittenStream:
        """Open a stream, let ``body`` fill it, close it.

        Raises what ``body`` or the storage raises, RetryableError (``cancelled``) after a cancel."""
        stream = self._streams.create_stream(scope)
        self._open.register(stream)
        try:
            body(stream)
            if not self._open.unregister(stream):
                raise cancelled()
            written = stream.close_and_get_handle()
        except BaseException as error:
            self._open.unregister(stream)
            self._undo(stream.close, error)
            if self._open.closed and not _is_cancel(error):
                raise cancelled() from error
            raise
        with self._lock:
            self._written.append(written)
        return written

    def write_pieces(self, pieces: Iterable[bytes | memoryview]) -> WrittenStream:
        """One stream of all pieces, each fetched when the one before is written; as :meth:`write`."""

        def copy(stream: CheckpointOutputStream) -> None:
            for piece in pieces:
                stream.write(piece)

        return self.write(copy)

    def check_running(self) -> None:
        """For long work between streams: raises RetryableError (``cancelled``) after a cancel."""
        if self._open.closed:
            raise cancelled()

    def stop(self) -> None:
        """End the open streams of all threads and refuse new ones."""
        self._open.close()

    def complete(self) -> tuple[WrittenStream, ...]:
        """Keep everything; the last step of a snapshot. RetryableError (``cancelled``) if a cancel came first."""
        if self._open.closed or not self._registry.unregister(self._open):
            raise cancelled()
        self._completed = True
        return tuple(self._written)

    def _undo(self, step: Callable[[], None], error: BaseException | None) -> None:
        """One step of cleaning up: its failure is told with the error that made it necessary."""
        try:
            step()
        except StatelibError as second:
            if error is None:
                raise
            error.add_note(f"also while discarding the snapshot: {second}")


def cancelled() -> RetryableError:
    return RetryableError("the snapshot was cancelled", kind="cancelled")


def _is_cancel(error: BaseException) -> bool:
    return isinstance(error, StatelibError) and error.kind == "cancelled"
