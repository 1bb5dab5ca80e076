"""The streams of one snapshot: all of them become handles, or none of them leaves a trace.

Source: requirements R14, R43, R44, R103 to R107, R115.
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
from statelib.snapshots.previous import CopyableFile
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.local.store import LocalSnapshotDirectories, LocalSnapshotDirectory
from statelib.storage.views import (
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
    """Where a snapshot keeps local copies; None without local recovery."""
    return None if local is None else local.open(checkpoint_id)


class Uploads:
    """A context: what was written in it is discarded at its end, unless :meth:`complete` was called.

    ``registry`` cancels: closing it from any thread ends every open stream, and nothing new can be
    opened. :meth:`write` may be called by several threads: the end stops those that still write and waits for them,
    and later calls are refused. ``local``: where this host keeps copies of what is written; they are its owner's to
    discard."""

    def __init__(
        self,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
        local: LocalSnapshotDirectory | None = None,
    ) -> None:
        self._streams = streams
        self._both = streams if local is None else DuplicatingStreams(streams, local.streams)
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
        """Open a stream, let ``body`` fill it, close it; a local copy is written at the same time.

        Raises what ``body`` or the storage raises, RetryableError (``cancelled``) after a cancel."""
        with self._as_writer():
            return self._written[self._write(self._both, scope, body)]

    def write_file(self, path: str, name: str, scope: CheckpointedStateScope) -> WrittenStream:
        """A stream with the content of a local file that nobody changes; that file, as ``name``, is its local copy."""

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
        """As :meth:`write_file`, of a local file whose bytes an earlier snapshot has: the storage copies them."""
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
        kept: Callable[[WrittenStream], WrittenStream] = lambda written: replace(written, local_name=None),
    ) -> WrittenStream:
        """A stream with the bytes of an earlier snapshot's file, which the storage itself copies. Where it cannot or
        fails to, the stream that ``otherwise`` writes, which is logged. ``kept``: the stream with its local copy."""
        with self._as_writer():
            self.check_running()
            handle = self._duplicated(stored, scope)
            if handle is not None:
                number = self._record(replace(stored.stream, handle=handle))
                self._written[number] = kept(self._written[number])
                return self._written[number]
        return otherwise()

    def _duplicated(self, stored: CopyableFile, scope: CheckpointedStateScope) -> StreamStateHandle | None:
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
        """Return what lies in storage with the local file of the same bytes kept as its copy."""
        if self._local is None or isinstance(stored.handle, ByteStreamStateHandle):
            return replace(stored, local_name=None)
        return replace(stored, local_name=self._local.keep(path, name))

    def carry(self, stored: WrittenStream) -> WrittenStream:
        """Return what an earlier snapshot wrote with a link to the copy that this host has of it, if there is one."""
        if self._local is None or isinstance(stored.handle, ByteStreamStateHandle):
            return replace(stored, local_name=None)
        return replace(stored, local_name=self._local.carry(stored.handle))

    @contextmanager
    def _as_writer(self) -> Iterator[None]:
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
        """Return once no thread writes; none will again."""
        with self._idle:
            self._ended = True
            self._idle.wait_for(lambda: not self._writing)

    def _write(
        self,
        streams: CheckpointStreamFactory,
        scope: CheckpointedStateScope,
        body: Callable[[CheckpointOutputStream], None],
    ) -> int:
        """Return the number under which the stream is recorded."""
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
        """Return the number under which a stream is kept, to be discarded unless all is completed."""
        with self._idle:
            number = len(self._written)
            self._written[number] = written
        return number

    def write_pieces(
        self,
        pieces: Iterable[bytes | memoryview],
        scope: CheckpointedStateScope = CheckpointedStateScope.EXCLUSIVE,
    ) -> WrittenStream:
        """One stream of all pieces, each fetched when the one before is written; as :meth:`write`."""

        def copy(stream: CheckpointOutputStream) -> None:
            for piece in pieces:
                stream.write(piece)

        return self.write(copy, scope)

    def check_running(self) -> None:
        """For long work between streams: raises RetryableError (``cancelled``) after a cancel."""
        if self._open.closed:
            raise cancelled()

    def stop(self) -> None:
        """End the open streams of all threads and refuse new ones."""
        self._open.close()

    def complete(self) -> tuple[WrittenStream, ...]:
        """Keep everything, durably; the last step of a snapshot.

        Raises RetryableError (``cancelled``) if a cancel came first."""
        physical = self._streams.flush() if self._written and not self._open.closed else {}
        if self._open.closed or not self._registry.unregister(self._open):
            raise cancelled()
        self._completed = True
        return tuple(_settled(written, physical) for written in self._written.values())

    def _undo(self, step: Callable[[], None], error: BaseException | None) -> None:
        """One step of cleaning up: its failure is told with the error that made it necessary."""
        try:
            step()
        except StatelibError as second:
            if error is None:
                raise
            error.add_note(f"also while discarding the snapshot: {second}")


def _settled(written: WrittenStream, physical: Mapping[str, PhysicalFile]) -> WrittenStream:
    """A segment's file is whole only now."""
    handle = written.handle
    return replace(written, physical=physical[handle.path]) if isinstance(handle, SegmentFileStateHandle) else written


def discard_all(streams: CheckpointStreamFactory, written: Iterable[WrittenStream], cause: BaseException) -> None:
    """Remove what was written. What cannot be removed is noted with ``cause``, and left to the orphan sweep."""
    for stream in written:
        try:
            streams.discard(stream.handle)
        except StatelibError as second:
            cause.add_note(f"also while discarding the snapshot: {second}")


def cancelled() -> RetryableError:
    return RetryableError("the snapshot was cancelled", kind="cancelled")


def _is_cancel(error: BaseException) -> bool:
    return isinstance(error, StatelibError) and error.kind == "cancelled"
