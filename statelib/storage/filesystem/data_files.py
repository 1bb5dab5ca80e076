"""The data files of a checkpoint on a file system. They are created under their final name and durable once
finished."""

import contextlib
import errno
import os

from statelib.crash_points import crash_point
from statelib.model.handles import FileStateHandle, RelativeFileStateHandle
from statelib.model.ids import PipelineName
from statelib.storage.filesystem.descriptors import create_in, opened_directory, write_all
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.reader import BLOCK_BYTES
from statelib.storage.uris import to_uri

_CANNOT_COPY = (errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL)


class PipelineDirectory:
    """A directory of a pipeline for files that outlive one checkpoint, such as ``shared``. It is created when the
    first file is written."""

    def __init__(self, root: str, pipeline: PipelineName, name: str) -> None:
        self._root = root
        self._parts = (pipeline, name)
        self._made = False
        self.path = "/".join((root.rstrip("/"), *self._parts))

    def make(self) -> None:
        """Create the directory if it does not exist. It is durable when this returns. Raise CorruptStateError
        (``not-a-regular-file``) if a directory on the way is a link."""
        if not self._made:
            with storage_errors(f"making {self.path}"), opened_directory(self._root, self._parts, create=True):
                self._made = True


class DataFile:
    """A new file under its final name. Nothing reads it before its handle is acknowledged."""

    def __init__(self, directory: str, name: str, *, absolute: bool = False) -> None:
        self._directory = directory
        self._name = name
        self._absolute = absolute
        self._size_bytes = 0
        crash_point("data file: before")
        with storage_errors(f"creating {name} in {directory}"):
            self._file = create_in(directory, name)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with storage_errors(f"writing {self._name} in {self._directory}"):
            write_all(self._file, data)
        self._size_bytes += len(data)

    def copy_from(self, source: int, size_bytes: int) -> int:
        """Append the first ``size_bytes`` bytes of the open file ``source``, or all if it has fewer. Return the number
        of bytes that were appended.

        The kernel copies the bytes; some file systems only refer to the same blocks. Where the kernel cannot copy,
        the bytes are read and written."""
        copied = 0
        with storage_errors(f"copying into {self._name} in {self._directory}"):
            while copied < size_bytes and (count := _copy_some(source, self._file, size_bytes - copied, copied)):
                copied += count
        self._size_bytes += copied
        return copied

    def finish(self) -> FileStateHandle | RelativeFileStateHandle:
        """Make the file durable, close it and return its handle."""
        with storage_errors(f"syncing {self._name} in {self._directory}"), opened_directory(self._directory) as parent:
            crash_point("data file: written")
            os.fsync(self._file)
            self._close()
            os.fsync(parent)
            crash_point("data file: durable")
        if self._absolute:
            return FileStateHandle(to_uri(f"{self._directory}/{self._name}"), self._size_bytes)
        return RelativeFileStateHandle(self._name, self._size_bytes)

    def drop(self) -> None:
        """Close and remove the file."""
        try:
            with storage_errors(f"dropping {self._name} in {self._directory}"):
                self._close()
        finally:
            remove_file(self._directory, self._name)

    def _close(self) -> None:
        file, self._file = self._file, -1  # before the close: the descriptor is invalid even if the close fails
        if file >= 0:
            os.close(file)


def _copy_some(source: int, target: int, size_bytes: int, offset: int) -> int:
    """Copy at most ``size_bytes`` bytes from ``offset`` of ``source`` to the position of ``target``. Return the number
    of bytes copied, 0 at the end of the source."""
    try:
        return os.copy_file_range(source, target, size_bytes, offset)
    except OSError as error:
        if error.errno not in _CANNOT_COPY:
            raise
        block = os.pread(source, min(size_bytes, BLOCK_BYTES), offset)
        write_all(target, block)
        return len(block)


def remove_file(directory: str, name: str) -> None:
    """Remove a file. It succeeds if the file is gone already."""
    with (
        storage_errors(f"removing {name} in {directory}"),
        contextlib.suppress(FileNotFoundError),
        opened_directory(directory) as parent,
    ):
        crash_point("data file: before removal")
        os.unlink(name, dir_fd=parent)
        crash_point("data file: removed")
