"""Checkpoint storage on a local, shared or mounted file system.

Layout: ``<root>/<pipeline>/chk-<id>/`` and ``<target or root/savepoints>/savepoint-<pipeline>-<id>/``,
each with ``_metadata`` and data files named ``<attempt>-<subtask>-<number>``, flat; files that several
checkpoints of a pipeline may refer to lie in ``<root>/<pipeline>/shared/`` under such names.
Source: FsCheckpointStorageAccess, FsCheckpointStreamFactory; flink-formats.md section 4.8; R84 to R101.
"""

import contextlib
import itertools
import os
import re
from dataclasses import dataclass

from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from statelib.model.ids import AttemptId, CheckpointId, PipelineName, pipeline_name
from statelib.storage.descriptors import create_file, opened_directory, write_all
from statelib.storage.failures import storage_errors
from statelib.storage.publish import METADATA_NAME, put_if_absent, read_published
from statelib.storage.streams import CheckpointStream
from statelib.storage.uris import local_path, parts_below, shown, to_uri
from statelib.storage.views import CheckpointedStateScope, StorageReference

DEFAULT_INLINE_THRESHOLD_BYTES = 20 * 1024
MAX_INLINE_THRESHOLD_BYTES = 1 << 20
SHARED_DIRECTORY = "shared"

_ATTEMPT = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class FileSystemCheckpointStorage:
    """Both views of the checkpoints of one pipeline below ``root``: an absolute path or ``file:``
    URI, kept as URI. Constructing it does no I/O; it is a value and may be pickled."""

    root: str
    pipeline: PipelineName
    inline_threshold_bytes: int = DEFAULT_INLINE_THRESHOLD_BYTES

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", to_uri(self.root))
        pipeline_name(self.pipeline)
        if not 0 <= self.inline_threshold_bytes <= MAX_INLINE_THRESHOLD_BYTES:
            raise InvalidRequestError(
                f"inline threshold {self.inline_threshold_bytes}: expected 0 to {MAX_INLINE_THRESHOLD_BYTES} bytes",
                kind="bad-inline-threshold",
            )

    def initialize_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        """Make ``chk-<id>``; ConflictError (``location-taken``) if a checkpoint was published there."""
        return _claim_directory(self.root, self.pipeline, f"chk-{_number(checkpoint_id, 'checkpoint id')}")

    def initialize_savepoint_location(self, checkpoint_id: CheckpointId, target: str | None) -> StorageReference:
        """Make ``savepoint-<pipeline>-<id>`` under ``target``; ConflictError (``location-taken``) as above."""
        name = f"savepoint-{self.pipeline}-{_number(checkpoint_id, 'checkpoint id')}"
        if target is None:
            return _claim_directory(self.root, "savepoints", name)
        return _claim_directory(target, name)

    def publish_metadata(self, reference: StorageReference, data: bytes) -> bytes:
        return put_if_absent(reference.directory, METADATA_NAME, data)

    def read_metadata(self, reference: StorageReference) -> bytes:
        return read_published(reference.directory)

    def resolve_checkpoint_storage_location(
        self, checkpoint_id: CheckpointId, reference: StorageReference, attempt: AttemptId, subtask: int
    ) -> "FileSystemStreamFactory":
        """Raises NotFoundError (``no-location``) if nobody made the directory, or not for this host."""
        path = local_path(reference.directory)
        if not os.path.isdir(path) or os.path.islink(path):
            raise NotFoundError(
                f"checkpoint {checkpoint_id}: no directory {path}",
                kind="no-location",
                hint="every Spark executor must see the storage under the same path",
            )
        root = local_path(self.root)
        own = parts_below(path, root) == (self.pipeline, f"chk-{checkpoint_id}")
        shared = _SharedDirectory(root, self.pipeline) if own else None
        return FileSystemStreamFactory(path, attempt, subtask, self.inline_threshold_bytes, shared)


class _SharedDirectory:
    """Where the checkpoints of a pipeline keep the files they share; made when the first one comes."""

    def __init__(self, root: str, pipeline: PipelineName) -> None:
        self._root = root
        self._parts = (pipeline, SHARED_DIRECTORY)
        self._made = False
        self.path = "/".join((root.rstrip("/"), *self._parts))

    def make(self) -> None:
        """Durable when it returns; a link on the way is refused."""
        if not self._made:
            with storage_errors(f"making {self.path}"), opened_directory(self._root, self._parts, create=True):
                self._made = True


class FileSystemStreamFactory:
    """Streams of one subtask's try. Two tries with one attempt id collide loudly, never silently.

    Files of scope SHARED go to ``shared`` and have absolute handles, those of scope EXCLUSIVE lie
    beside ``_metadata`` and have relative ones. Without ``shared`` (a savepoint, which is whole by
    itself) every file is exclusive."""

    def __init__(
        self,
        directory: str,
        attempt: AttemptId,
        subtask: int,
        inline_threshold_bytes: int,
        shared: _SharedDirectory | None = None,
    ) -> None:
        if not _ATTEMPT.fullmatch(attempt):
            raise InvalidRequestError(
                f"attempt {shown(attempt)}: expected 32 lower-case hexadecimal digits", kind="bad-attempt"
            )
        self._directory = directory
        self._prefix = f"{attempt}-{_number(subtask, 'subtask')}-"
        self._inline_threshold_bytes = inline_threshold_bytes
        self._shared = shared
        self._numbers = itertools.count()

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointStream:
        name = f"{self._prefix}{next(self._numbers)}"
        shared = self._shared if scope is CheckpointedStateScope.SHARED else None
        return CheckpointStream(name, self._inline_threshold_bytes, lambda _size: self._data_file(name, shared))

    def discard(self, handle: StreamStateHandle) -> None:
        """Raises InvalidRequestError (``foreign-file``) for a file that this factory did not name."""
        if isinstance(handle, ByteStreamStateHandle):
            return
        directory, place = self._directory, ""
        if isinstance(handle, FileStateHandle) and self._shared is not None:
            directory, place = self._shared.path, f"{to_uri(self._shared.path)}/"
        expected = f"{place}{self._prefix}"
        number = handle.path.removeprefix(expected)
        relative = isinstance(handle, RelativeFileStateHandle)
        if relative == bool(place) or handle.path == number or not number.isdecimal():
            raise InvalidRequestError(
                f"discarding {shown(handle.path)}: expected a file named {expected}<number>", kind="foreign-file"
            )
        _remove(directory, f"{self._prefix}{number}")

    def _data_file(self, name: str, shared: _SharedDirectory | None) -> "_DataFile":
        if shared is None:
            return _DataFile(self._directory, name)
        shared.make()
        return _DataFile(shared.path, name, absolute=True)


class _DataFile:
    """A new file under its final name: nobody looks for it before its handle is acknowledged."""

    def __init__(self, directory: str, name: str, *, absolute: bool = False) -> None:
        self._directory = directory
        self._name = name
        self._absolute = absolute
        self._size_bytes = 0
        with storage_errors(f"creating {name} in {directory}"), opened_directory(directory) as parent:
            self._file = create_file(parent, name)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with storage_errors(f"writing {self._name} in {self._directory}"):
            write_all(self._file, data)
        self._size_bytes += len(data)

    def finish(self) -> FileStateHandle | RelativeFileStateHandle:
        with storage_errors(f"syncing {self._name} in {self._directory}"), opened_directory(self._directory) as parent:
            os.fsync(self._file)
            self._close()
            os.fsync(parent)
        if self._absolute:
            return FileStateHandle(to_uri(f"{self._directory}/{self._name}"), self._size_bytes)
        return RelativeFileStateHandle(self._name, self._size_bytes)

    def drop(self) -> None:
        try:
            with storage_errors(f"dropping {self._name} in {self._directory}"):
                self._close()
        finally:
            _remove(self._directory, self._name)

    def _close(self) -> None:
        file, self._file = self._file, -1  # first: after a failed close the descriptor is gone all the same
        if file >= 0:
            os.close(file)


def _claim_directory(root: str, *parts: str) -> StorageReference:
    """A directory durably made, or found without ``_metadata``: a begin that crashed may be repeated."""
    path = local_path(root)
    where = "/".join((path.rstrip("/"), *parts))
    with (
        storage_errors(f"making {where}"),
        opened_directory(path, parts, create=True) as directory,
        contextlib.suppress(FileNotFoundError),
    ):
        os.stat(METADATA_NAME, dir_fd=directory, follow_symlinks=False)
        raise ConflictError(
            f"{where}: a checkpoint was published here already, ids are never reused",
            kind="location-taken",
            hint="a catalog restored from a backup must first learn of the checkpoints made since",
        )
    return StorageReference(to_uri(where))


def _remove(directory: str, name: str) -> None:
    """Remove a file; one that is gone is success."""
    with (
        storage_errors(f"removing {name} in {directory}"),
        contextlib.suppress(FileNotFoundError),
        opened_directory(directory) as parent,
    ):
        os.unlink(name, dir_fd=parent)


def _number(value: int, what: str) -> int:
    """An id that becomes part of a name: a plain integer, whatever its annotation promised."""
    if type(value) is not int or value < 0:
        raise InvalidRequestError(f"{what} {shown(str(value))}: expected an integer >= 0", kind="bad-id")
    return value
