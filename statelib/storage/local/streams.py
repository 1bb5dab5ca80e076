"""The streams of local copies. Their files are never synced, because a lost copy is read remotely."""

import itertools
import os
import threading
from collections.abc import Collection, Mapping

from statelib.errors import InvalidRequestError, RetryableError
from statelib.model.handles import RelativeFileStateHandle, StreamStateHandle
from statelib.storage.filesystem.descriptors import create_in, write_all
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.ports.views import CheckpointedStateScope, PhysicalFile, WrittenStream
from statelib.storage.uris import shown
from statelib.storage.wrappers.merging import whole_files
from statelib.wire.checksum import crc32c

_PREFIX = "stream-"


class LocalStreams:
    """A :class:`~statelib.storage.ports.views.CheckpointStreamFactory` of plain files in one directory. Handles are
    relative to the directory. The scope makes no difference."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._numbers = itertools.count()

    def create_stream(self, scope: CheckpointedStateScope) -> "LocalFileStream":  # noqa: ARG002 - the port's signature
        return LocalFileStream(self._directory, f"{_PREFIX}{next(self._numbers)}")

    def flush(self) -> Mapping[str, PhysicalFile]:
        """Return an empty result, because local copies are not made durable."""
        return {}

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        return whole_files(earlier)

    def duplicate(
        self,
        original: StreamStateHandle,  # noqa: ARG002 - the port's signature
        scope: CheckpointedStateScope,  # noqa: ARG002
    ) -> StreamStateHandle | None:
        """Return None, because a local copy of a stored file is made by a hard link, not by this factory."""
        return None

    def discard(self, handle: StreamStateHandle) -> None:
        """Remove the file of a stream. It succeeds if the file is gone already.

        Raises InvalidRequestError (``foreign-file``) for a handle that these streams did not return."""
        if not isinstance(handle, RelativeFileStateHandle) or not handle.path.removeprefix(_PREFIX).isdecimal():
            raise InvalidRequestError(
                f"discarding {shown(str(handle))}: expected a file named {_PREFIX}<number>", kind="foreign-file"
            )
        _unlink(self._directory, handle.path)


class LocalFileStream:
    """A :class:`~statelib.storage.ports.views.CheckpointOutputStream` that writes to a new file. The constructor
    creates the file.

    One thread writes; any thread may call :meth:`close`, which ends the writing and removes the file."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self._name = name
        self._lock = threading.Lock()
        self._position = 0
        self._crc32c = 0
        with storage_errors(f"creating {name} in {directory}"):
            self._file: int | None = create_in(directory, name)

    def position(self) -> int:
        return self._position

    def write(self, data: bytes | memoryview) -> None:
        """Append ``data``. Raises RetryableError (``cancelled``) if the stream was closed."""
        view = memoryview(data).cast("B")
        with self._lock, storage_errors(f"writing {self._name} in {self._directory}"):
            write_all(self._opened(), view)
            self._position += len(view)
            self._crc32c = crc32c(view, self._crc32c)

    def close_and_get_handle(self) -> WrittenStream:
        with self._lock, storage_errors(f"closing {self._name} in {self._directory}"):
            file, self._file = self._opened(), None
            try:
                os.close(file)
            except BaseException:
                _unlink(self._directory, self._name)
                raise
            return WrittenStream(RelativeFileStateHandle(self._name, self._position), self._position, self._crc32c)

    def close(self) -> None:
        with self._lock, storage_errors(f"dropping {self._name} in {self._directory}"):
            file, self._file = self._file, None
            if file is not None:
                try:
                    os.close(file)
                finally:
                    _unlink(self._directory, self._name)

    def _opened(self) -> int:
        if self._file is None:
            raise RetryableError(f"local stream {self._name} was closed", kind="cancelled")
        return self._file


def _unlink(directory: str, name: str) -> None:
    """Remove a file. It succeeds if the file is gone already, perhaps with its directory."""
    try:
        os.unlink(f"{directory}/{name}")
    except FileNotFoundError:
        return
