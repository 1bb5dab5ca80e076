"""The streams of one snapshot. Either all of them become handles, or all of them are removed.

Source: docs/spec/requirements.md R14, R43, R44, R103 to R107, R115.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from statelib.errors import RetryableError, StatelibError
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from statelib.model.ids import CheckpointId
from statelib.snapshots.uploads.previous import CopyableFile
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.local.store import LocalSnapshotDirectories, LocalSnapshotDirectory
from statelib.storage.ports.views import (
    CheckpointedStateScope,
    CheckpointOutputStream,
    CheckpointStreamFactory,
    PhysicalFile,
    WrittenStream,
)
from statelib.storage.wrappers.duplicating import DuplicatingStreams

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20


def local_directory(
    local: LocalSnapshotDirectories | None, checkpoint_id: CheckpointId
) -> LocalSnapshotDirectory | None:
    """Return the directory for the local copies of one snapshot; None without local recovery."""
    return None if local is None else local.open(checkpoint_id)


class Uploads:
    """A context manager for the streams of one snapshot. Its end discards them unless :meth:`complete` was called.

    Several threads may write at the same time. The end of the context stops the threads that still write and waits for
    them; later writes raise an error.

    Args:
        streams: The storage to write to.
        registry: The registry whose close, from any thread, cancels: all open streams end, and no new one can be
            opened.
        local: The directory for the local copies on this host; None to keep none. Its owner discards them.
    """

    def __init__(
        self,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
        local: LocalSnapshotDirectory | None = None,
    ) -> None:
        self._streams = streams
        self._with_local = streams if local is None else DuplicatingStreams(streams, local.streams)
        self._local = local
        self._registry = registry
        self._open = CloseableRegistry()
        self._idle = threading.Condition()
        self._writing = 0
        self._ended = False
        self._written: dict[int, WrittenStream] = {}
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
        self._wait_for_writers()
        for written in self._written.values():
            self._undo(partial(self._streams.discard, written.handle), error)

    def write(
        self,
        body: Callable[[CheckpointOutputStream], None],
        scope: CheckpointedStateScope = CheckpointedStateScope.EXCLUSIVE,
    ) -> WrittenStream:
        """Open a stream, call ``body`` to fill it, close it and return it. A local copy is written at the same time.

        Raises:
            RetryableError: ``cancelled`` after a cancel.
            StatelibError: The errors of ``body`` and of the storage.
        """
        with self._as_writer():
            return self._written[self._write(self._with_local, scope, body)]

    def write_file(self, path: str, name: str, scope: CheckpointedStateScope) -> WrittenStream:
        """Write a stream with the content of the local file at ``path``, and return it.

        The file must not change. It becomes the local copy of the stream, under the name ``name``. Raises the errors of
        :meth:`write`."""

        def copy(stream: CheckpointOutputStream) -> None:
            with open(path, "rb", buffering=0) as file:
                while block := file.read(BLOCK_BYTES):
                    stream.write(block)

        with self._as_writer():
            number = self._write(self._streams, scope, copy)
            self._written[number] = self.with_copy(self._written[number], path, name)
            return self._written[number]

    def duplicate_file(
        self, stored: CopyableFile, path: str, name: str, scope: CheckpointedStateScope
    ) -> WrittenStream:
        """Write a stream with the content of the local file at ``path``, which is also in ``stored``, and return it.

        The storage copies ``stored`` if it can; otherwise the local file is written as in :meth:`write_file`."""
        return self.duplicate(
            stored,
            scope,
            lambda: self.write_file(path, name, scope),
            lambda written: self.with_copy(written, path, name),
        )

    def duplicate(
        self,
        stored: CopyableFile,
        scope: CheckpointedStateScope,
        otherwise: Callable[[], WrittenStream],
        add_local_copy: Callable[[WrittenStream], WrittenStream] = lambda written: replace(written, local_name=None),
    ) -> WrittenStream:
        """Return a new stream with the content of an earlier snapshot's file, which the storage copies.

        Args:
            stored: The file of the earlier snapshot.
            scope: The scope of the new stream.
            otherwise: The function that writes the stream if the storage cannot copy the file or fails to. That is
                logged.
            add_local_copy: The function that adds the local copy to the stream; by default there is none.
        """
        with self._as_writer():
            self.check_running()
            handle = self._duplicated(stored, scope)
            if handle is not None:
                number = self._record(replace(stored.stream, handle=handle))
                self._written[number] = add_local_copy(self._written[number])
                return self._written[number]
        return otherwise()

    def _duplicated(self, stored: CopyableFile, scope: CheckpointedStateScope) -> StreamStateHandle | None:
        """Return the handle of the copy that the storage made; None, after a log line, if it did not make one."""
        original = FileStateHandle(stored.uri, stored.stream.size_bytes)
        try:
            handle = self._streams.duplicate(original, scope)
        except StatelibError as error:
            log.warning("%s is read and written, the storage failed to copy it: %s", stored.uri, error)
            return None
        if handle is None:
            log.info("%s is read and written, the storage cannot copy it to where the snapshot lies", stored.uri)
        return handle

    def with_copy(self, stored: WrittenStream, path: str, name: str) -> WrittenStream:
        """Return ``stored`` with the local file at ``path``, which has the same content, as its local copy ``name``."""
        if self._local is None or isinstance(stored.handle, ByteStreamStateHandle):
            return replace(stored, local_name=None)
        return replace(stored, local_name=self._local.keep(path, name))

    def carry(self, stored: WrittenStream) -> WrittenStream:
        """Return ``stored``, a stream of an earlier snapshot, with a link to its local copy if this host has one."""
        if self._local is None or isinstance(stored.handle, ByteStreamStateHandle):
            return replace(stored, local_name=None)
        return replace(stored, local_name=self._local.carry(stored.handle))

    @contextmanager
    def _as_writer(self) -> Iterator[None]:
        """Count this thread as a writer. Raise RetryableError (``cancelled``) if the context has ended."""
        with self._idle:
            if self._ended:
                raise cancelled()
            self._writing += 1
        try:
            yield
        finally:
            with self._idle:
                self._writing -= 1
                self._idle.notify_all()

    def _wait_for_writers(self) -> None:
        """Refuse new writers and wait until no thread writes."""
        with self._idle:
            self._ended = True
            self._idle.wait_for(lambda: not self._writing)

    def _write(
        self,
        streams: CheckpointStreamFactory,
        scope: CheckpointedStateScope,
        body: Callable[[CheckpointOutputStream], None],
    ) -> int:
        """Write one stream and return its number in ``_written``."""
        stream = streams.create_stream(scope)
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
        return self._record(written)

    def _record(self, written: WrittenStream) -> int:
        """Add a stream to those that the end of the context discards, and return its number in ``_written``."""
        with self._idle:
            number = len(self._written)
            self._written[number] = written
        return number

    def write_pieces(
        self,
        pieces: Iterable[bytes | memoryview],
        scope: CheckpointedStateScope = CheckpointedStateScope.EXCLUSIVE,
    ) -> WrittenStream:
        """Write one stream of all pieces and return it. A piece is computed only after the one before is written.

        Raises the errors of :meth:`write`."""

        def copy(stream: CheckpointOutputStream) -> None:
            for piece in pieces:
                stream.write(piece)

        return self.write(copy, scope)

    def check_running(self) -> None:
        """Raise RetryableError (``cancelled``) after a cancel. Long work between streams calls it from time to time."""
        if self._open.closed:
            raise cancelled()

    def stop(self) -> None:
        """End the open streams of all threads, and refuse new ones."""
        self._open.close()

    def complete(self) -> tuple[WrittenStream, ...]:
        """Make all streams durable and return them. After this last step the context discards nothing.

        Raises:
            RetryableError: ``cancelled`` if a cancel came first.
        """
        physical = self._streams.flush() if self._written and not self._open.closed else {}
        if self._open.closed or not self._registry.unregister(self._open):
            raise cancelled()
        self._completed = True
        return tuple(_settled(written, physical) for written in self._written.values())

    def _undo(self, step: Callable[[], None], error: BaseException | None) -> None:
        """Call ``step``, a part of the clean-up after ``error``, to which a further error is added as a note."""
        try:
            step()
        except StatelibError as second:
            if error is None:
                raise
            error.add_note(f"also while discarding the snapshot: {second}")


def _settled(written: WrittenStream, physical: Mapping[str, PhysicalFile]) -> WrittenStream:
    """Return a stream with its physical file, if it is a segment of a file that holds several streams.

    ``physical``: the files by path. Their size and checksums are final only after a flush."""
    handle = written.handle
    return replace(written, physical=physical[handle.path]) if isinstance(handle, SegmentFileStateHandle) else written


def discard_all(streams: CheckpointStreamFactory, written: Iterable[WrittenStream], cause: BaseException) -> None:
    """Remove the streams ``written``.

    If one cannot be removed, the error is added to ``cause`` as a note. The orphan sweep removes the file later."""
    for stream in written:
        try:
            streams.discard(stream.handle)
        except StatelibError as second:
            cause.add_note(f"also while discarding the snapshot: {second}")


def cancelled() -> RetryableError:
    """Return the error of a snapshot that was cancelled."""
    return RetryableError("the snapshot was cancelled", kind="cancelled")


def _is_cancel(error: BaseException) -> bool:
    """Return whether ``error`` is that of a cancelled snapshot."""
    return isinstance(error, StatelibError) and error.kind == "cancelled"
