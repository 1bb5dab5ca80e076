"""Streams written twice at once: to checkpoint storage, and to this host's disk for the next restore.

The primary stream is the checkpoint; the secondary is a convenience whose failure costs nothing else.
Source: requirements R76, R108 to R114 (DuplicatingCheckpointOutputStream, CheckpointStreamWithResultProvider).
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from statelib.errors import CorruptStateError, RetryableError, StatelibError
from statelib.model.handles import ByteStreamStateHandle, RelativeFileStateHandle, StreamStateHandle
from statelib.storage.views import (
    CheckpointedStateScope,
    CheckpointOutputStream,
    CheckpointStreamFactory,
    PhysicalFile,
    WrittenStream,
)

log = logging.getLogger(__name__)

_FAILURES = (OSError, StatelibError)


class DuplicatingCheckpointOutputStream:
    """A :class:`~statelib.storage.views.CheckpointOutputStream` that is ``primary``, and copies to ``secondary``.

    Offsets must hold for both: a secondary that stands elsewhere is given up at once. Its first failure
    is kept and raised by :meth:`close_and_get_secondary_handle` only; the primary's are raised as they come."""

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
        """The primary's, with ``local_name`` unless there is no copy, or none is needed: inline state lies in
        ``_metadata``."""
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
        """Raises what the storage raises."""
        return self._primary.close_and_get_handle()

    def close_and_get_secondary_handle(self) -> WrittenStream:
        """Raises RetryableError (``local-copy-failed``) from the first failure of the secondary stream."""
        if self._failure is not None:
            raise RetryableError(
                f"the secondary stream failed before: {self._failure}", kind="local-copy-failed"
            ) from self._failure
        return self._secondary.close_and_get_handle()

    def close(self) -> None:
        """Drop both, whatever happens to one of them."""
        try:
            self._close_secondary()
        finally:
            self._primary.close()

    def _give_up(self, error: Exception) -> None:
        self._failure = error
        self._close_secondary()

    def _close_secondary(self) -> None:
        try:
            self._secondary.close()
        except _FAILURES as error:
            self._failure = self._failure or error

    def _same(self, written: WrittenStream, copy: WrittenStream) -> RelativeFileStateHandle:
        """The copy's handle, if both streams hold the same bytes."""
        if (copy.size_bytes, copy.crc32c) != (written.size_bytes, written.crc32c):
            raise CorruptStateError(
                f"expected {written.size_bytes} bytes of crc32c {written.crc32c:08x} in the local copy, found"
                f" {copy.size_bytes} of {copy.crc32c:08x}",
                kind="checksum-mismatch",
            )
        assert isinstance(copy.handle, RelativeFileStateHandle)
        return copy.handle


class DuplicatingStreams:
    """A :class:`~statelib.storage.views.CheckpointStreamFactory`: the streams of ``primary``, each with a copy in
    ``secondary``. Where there is nothing to copy to, ``primary`` is used as it is: the simple provider."""

    def __init__(self, primary: CheckpointStreamFactory, secondary: CheckpointStreamFactory) -> None:
        self._primary = primary
        self._secondary = secondary

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointOutputStream:
        """Raises if the primary stream cannot be opened; if the secondary cannot, the primary is enough."""
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
        """Of the primary: a copy that is not durable is only lost."""
        return self._primary.flush()

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        return self._primary.reusable(earlier)

    def duplicate(self, original: StreamStateHandle, scope: CheckpointedStateScope) -> StreamStateHandle | None:
        """Of the primary: whoever has the bytes locally keeps them."""
        return self._primary.duplicate(original, scope)

    def discard(self, handle: StreamStateHandle) -> None:
        """Of the primary; local copies go with their directory."""
        self._primary.discard(handle)
