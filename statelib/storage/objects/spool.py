"""Objects that are gathered in a local file without a name, and uploaded when they are complete.

Nothing is in the bucket before :meth:`SpooledObject.finish`. So a stream that is dropped, or whose process is killed,
leaves nothing there. A process that is killed during the upload leaves at most an unfinished multipart upload.
"""

import tempfile
from collections.abc import Callable, Iterator

from statelib.errors import CorruptStateError, RetryableError
from statelib.model.handles import StreamStateHandle
from statelib.storage.filesystem.descriptors import write_all
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.reader import blocks
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.uris import ObjectLocation
from statelib.wire.checksum import crc32c


class SpooledObject:
    """A :class:`~statelib.storage.streams.InterruptibleFile` that becomes an object at ``location``.

    ``scratch`` is the local directory of the file, None for the system's own temporary directory. ``handle`` returns
    the handle of the object, given its size in bytes."""

    def __init__(
        self, objects: Bucket, location: ObjectLocation, scratch: str | None, handle: Callable[[int], StreamStateHandle]
    ) -> None:
        self._objects = objects
        self._location = location
        self._handle = handle
        self._size_bytes = 0
        self._crc32c = 0
        self._sent = False
        self._interrupted = False
        with storage_errors(f"spooling {location.uri}"):
            self._file = tempfile.TemporaryFile(dir=scratch, buffering=0)  # noqa: SIM115 - closed by finish or drop

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with storage_errors(f"spooling {self._location.uri}"):
            write_all(self._file.fileno(), data)
        self._size_bytes += len(data)
        self._crc32c = crc32c(data, self._crc32c)

    def finish(self) -> StreamStateHandle:
        """Upload the object, verify its size in the bucket, and return its handle.

        Raises RetryableError (``storage-io``) if the size differs, CorruptStateError (``checksum-mismatch``) if the
        local file has changed."""
        self._sent = True
        self._objects.put(self._location.key, self._size_bytes, self._content)
        stored_bytes = self._objects.size(self._location.key)
        if stored_bytes != self._size_bytes:
            raise RetryableError(
                f"{self._location.uri}: sent {self._size_bytes} bytes, found {stored_bytes}", kind="storage-io"
            )
        self._file.close()
        return self._handle(self._size_bytes)

    def interrupt(self) -> None:
        """End a running upload at its next block. Any thread may call this."""
        self._interrupted = True

    def drop(self) -> None:
        """Remove the local file, and the object if an upload was begun: the reply of a successful upload may be
        lost."""
        self._file.close()
        if self._sent:
            self._objects.delete(self._location.key)

    def _content(self) -> Iterator[bytes]:
        """Yield the bytes of the local file in blocks. The last block follows only after the checksum of all bytes was
        verified. An error that is raised here ends the upload."""
        crc = 0
        with storage_errors(f"sending {self._location.uri}"):
            last = b""
            for block in blocks(self._file.fileno()):
                if self._interrupted:
                    raise RetryableError(f"sending {self._location.uri}: cancelled", kind="cancelled")
                if last:
                    yield last
                crc = crc32c(block, crc)
                last = block
        if crc != self._crc32c:
            raise CorruptStateError(
                f"{self._location.uri}: spooled with crc32c {self._crc32c:08x}, read back with {crc:08x}",
                kind="checksum-mismatch",
                hint="the local disk of this worker is in trouble",
            )
        if last:
            yield last
