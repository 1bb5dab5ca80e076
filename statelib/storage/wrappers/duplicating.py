"""Streams that are written to two places: to checkpoint storage, and to this host's disk for the next restore.

The primary stream is part of the checkpoint. The secondary stream is a local copy, and its failure does not fail the
checkpoint. Source: docs/spec/requirements.md R76, R108 to R114 (DuplicatingCheckpointOutputStream,
CheckpointStreamWithResultProvider).
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from statelib.errors import CorruptStateError, RetryableError, StatelibError
from statelib.model.handles import ByteStreamStateHandle, RelativeFileStateHandle, StreamStateHandle
from statelib.storage.ports.views import (
    CheckpointedStateScope,
    CheckpointOutputStream,
    CheckpointStreamFactory,
    PhysicalFile,
    WrittenStream,
)

log = logging.getLogger(__name__)

_FAILURES = (OSError, StatelibError)


class DuplicatingCheckpointOutputStream:
    """A :class:`~statelib.storage.ports.views.CheckpointOutputStream` that writes to ``primary`` and the same bytes to
    ``secondary``.

    Both streams must be at the same position, because offsets are valid in both; otherwise the secondary stream is
    closed at once. The first failure of the secondary stream is raised only by
    :meth:`close_and_get_secondary_handle`. A failure of the primary stream is raised at once."""

    def __init__(self, primary: CheckpointOutputStream, secondary: CheckpointOutputStream) -> None:
        self._primary = primary
        self._secondary = secondary
        self._failure: Exception | None = None
        if primary.position() != secondary.position():
            self._give_up(
                CorruptStateError(
                    f"the primary stream is at {primary.position()}, the secondary at {secondary.position()}:"
                    " expected both at one position",
                    kind="position-mismatch",
                )
            )

    def position(self) -> int:
        return self._primary.position()

    def write(self, data: bytes | memoryview) -> None:
        self._primary.write(data)
        if self._failure is None:
            try:
                self._secondary.write(data)
            except _FAILURES as error:
                self._give_up(error)

    def close_and_get_handle(self) -> WrittenStream:
        """Complete both streams and return the primary's result, with the copy's name as ``local_name``. It has no
        ``local_name`` if the copy failed, and for inline state, which is part of ``_metadata``."""
        written = self.close_and_get_primary_handle()
        if isinstance(written.handle, ByteStreamStateHandle):
            self._close_secondary()
            return written
        try:
            copy = self._same(written, self.close_and_get_secondary_handle())
        except _FAILURES as error:
            log.warning("no local copy of %s: %s", written.handle.path, error)
            self._close_secondary()
            return written
        return replace(written, local_name=copy.path)

    def close_and_get_primary_handle(self) -> WrittenStream:
        """Complete the primary stream and return its result. Raises the errors of the storage."""
        return self._primary.close_and_get_handle()

    def close_and_get_secondary_handle(self) -> WrittenStream:
        """Complete the secondary stream and return its result. Raises RetryableError (``local-copy-failed``) if it
        failed earlier; the cause is its first failure."""
        if self._failure is not None:
            raise RetryableError(
                f"the secondary stream failed before: {self._failure}", kind="local-copy-failed"
            ) from self._failure
        return self._secondary.close_and_get_handle()

    def close(self) -> None:
        """Drop the data of both streams, even if dropping one of them fails."""
        try:
            self._close_secondary()
        finally:
            self._primary.close()

    def _give_up(self, error: Exception) -> None:
        """Record the failure of the secondary stream and close it."""
        self._failure = error
        self._close_secondary()

    def _close_secondary(self) -> None:
        try:
            self._secondary.close()
        except _FAILURES as error:
            self._failure = self._failure or error

    def _same(self, written: WrittenStream, copy: WrittenStream) -> RelativeFileStateHandle:
        """Return the copy's handle. Raise CorruptStateError (``checksum-mismatch``) unless both streams hold the same
        bytes."""
        if (copy.size_bytes, copy.crc32c) != (written.size_bytes, written.crc32c):
            raise CorruptStateError(
                f"expected {written.size_bytes} bytes of crc32c {written.crc32c:08x} in the local copy, found"
                f" {copy.size_bytes} of {copy.crc32c:08x}",
                kind="checksum-mismatch",
            )
        assert isinstance(copy.handle, RelativeFileStateHandle)
        return copy.handle


class DuplicatingStreams:
    """A :class:`~statelib.storage.ports.views.CheckpointStreamFactory` whose streams write to ``primary``, and a copy
    to ``secondary``. Without a place for copies, callers use ``primary`` itself."""

    def __init__(self, primary: CheckpointStreamFactory, secondary: CheckpointStreamFactory) -> None:
        self._primary = primary
        self._secondary = secondary

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointOutputStream:
        """Return a new stream that writes to both. If the secondary stream cannot be opened, log a warning and return
        the primary stream. Raises the errors of opening the primary stream."""
        primary = self._primary.create_stream(scope)
        try:
            secondary = self._secondary.create_stream(scope)
        except _FAILURES as error:
            log.warning("no local copy can be opened: %s. Continue only with the primary stream.", error)
            return primary
        except BaseException:
            primary.close()
            raise
        return DuplicatingCheckpointOutputStream(primary, secondary)

    def flush(self) -> Mapping[str, PhysicalFile]:
        """Flush the primary factory. Copies need not be durable, because a lost copy is read remotely."""
        return self._primary.flush()

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        return self._primary.reusable(earlier)

    def duplicate(self, original: StreamStateHandle, scope: CheckpointedStateScope) -> StreamStateHandle | None:
        """Duplicate the file in the primary storage. No local copy is made here."""
        return self._primary.duplicate(original, scope)

    def discard(self, handle: StreamStateHandle) -> None:
        """Remove the file of the primary. Local copies are removed with their directory."""
        self._primary.discard(handle)
