"""State that belongs to a task, not to a checkpoint: written, duplicated and removed by tasks only (R89 to R93).

It lies in ``<pipeline>/taskowned/``, which retention, gc and the orphan sweep leave alone. Files there never
change and each has its own blocks or object, so a duplicate and its original live and die apart.
"""

import os
import re
from collections.abc import Sequence

from statelib.errors import InvalidRequestError, StatelibError, UnsupportedError
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, StreamStateHandle
from statelib.model.ids import AttemptId, PipelineName
from statelib.storage.filesystem.data_files import DataFile, PipelineDirectory, remove_file
from statelib.storage.filesystem.descriptors import opened_directory, opened_file
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.reader import check_size
from statelib.storage.names import TASK_OWNED_DIRECTORY, task_owned_name
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.spool import SpooledObject
from statelib.storage.objects.uris import SCHEMES, ObjectLocation, is_object, object_location
from statelib.storage.streams import CheckpointStream
from statelib.storage.uris import local_path, shown, to_uri

_NAME = re.compile(r"[0-9a-f]{32}-\d+-\d+")


class FileTaskOwned:
    """Task-owned streams of a file system, and the toolset for them."""

    def __init__(
        self, root: str, pipeline: PipelineName, attempt: AttemptId, subtask: int, inline_threshold_bytes: int
    ) -> None:
        self._root = local_path(root)
        self._directory = PipelineDirectory(self._root, pipeline, TASK_OWNED_DIRECTORY)
        self._inline_threshold_bytes = inline_threshold_bytes
        self._try = (attempt, subtask)

    def create_stream(self) -> CheckpointStream:
        name = task_owned_name(*self._try)
        return CheckpointStream(name, self._inline_threshold_bytes, lambda _size: self._new_file(name))

    def can_fast_duplicate(self, handle: StreamStateHandle) -> bool:
        """A whole file by absolute path, on the file system of this storage."""
        if not isinstance(handle, FileStateHandle) or is_object(handle.path):
            return False
        try:
            return os.stat(os.path.dirname(local_path(handle.path))).st_dev == os.stat(self._root).st_dev
        except (OSError, StatelibError):
            return False

    def duplicate(self, handles: Sequence[StreamStateHandle]) -> tuple[StreamStateHandle, ...]:
        sources = [duplicable(handle, self.can_fast_duplicate(handle)) for handle in handles]
        done: list[StreamStateHandle] = []
        try:
            done.extend(self._copied(source) for source in sources)
        except BaseException:
            for handle in done:
                self.discard(handle)
            raise
        return tuple(done)

    def discard(self, handle: StreamStateHandle) -> None:
        if not isinstance(handle, ByteStreamStateHandle):
            remove_file(self._directory.path, _own_name(handle, to_uri(self._directory.path)))

    def _new_file(self, name: str) -> DataFile:
        self._directory.make()
        return DataFile(self._directory.path, name, absolute=True)

    def _copied(self, handle: FileStateHandle) -> StreamStateHandle:
        directory, _, name = local_path(handle.path).rpartition("/")
        with (
            storage_errors(f"duplicating {shown(handle.path)}"),
            opened_directory(directory or "/") as parent,
            opened_file(parent, name) as source,
        ):
            check_size(handle.path, handle.size_bytes, os.fstat(source).st_size)
            target = self._new_file(task_owned_name(*self._try))
            try:
                check_size(handle.path, handle.size_bytes, target.copy_from(source, handle.size_bytes))
                return target.finish()
            except BaseException:
                target.drop()
                raise


class ObjectTaskOwned:
    """Task-owned streams of an object storage, and the toolset for them: duplicates are copied by the server."""

    def __init__(
        self,
        objects: Bucket,
        directory: ObjectLocation,
        attempt: AttemptId,
        subtask: int,
        inline_threshold_bytes: int,
        *,
        scratch: str | None,
    ) -> None:
        self._objects = objects
        self._directory = directory
        self._inline_threshold_bytes = inline_threshold_bytes
        self._scratch = scratch
        self._try = (attempt, subtask)

    def create_stream(self) -> CheckpointStream:
        name = task_owned_name(*self._try)
        location = self._directory.below(name)
        return CheckpointStream(
            name,
            self._inline_threshold_bytes,
            lambda _size: SpooledObject(
                self._objects, location, self._scratch, lambda size: FileStateHandle(location.uri, size)
            ),
        )

    def can_fast_duplicate(self, handle: StreamStateHandle) -> bool:
        """A whole object of the same bucket that the storage copies in one request, and has copied when it answers."""
        if not isinstance(handle, FileStateHandle) or not is_object(handle.path):
            return False
        same_bucket = object_location(handle.path).bucket_uri == self._directory.bucket_uri
        return same_bucket and handle.size_bytes <= SCHEMES[self._directory.scheme].copied_bytes

    def duplicate(self, handles: Sequence[StreamStateHandle]) -> tuple[StreamStateHandle, ...]:
        sources = [duplicable(handle, self.can_fast_duplicate(handle)) for handle in handles]
        targets = [self._directory.below(task_owned_name(*self._try)) for _ in sources]
        try:
            for source, target in zip(sources, targets, strict=True):
                self._objects.copy(object_location(source.path).key, target.key)
                check_size(source.path, source.size_bytes, self._objects.size(target.key))
        except BaseException:
            for target in targets:
                self._objects.delete(target.key)
            raise
        return tuple(FileStateHandle(t.uri, s.size_bytes) for s, t in zip(sources, targets, strict=True))

    def discard(self, handle: StreamStateHandle) -> None:
        if not isinstance(handle, ByteStreamStateHandle):
            self._objects.delete(self._directory.below(_own_name(handle, self._directory.uri)).key)


def duplicable(handle: StreamStateHandle, possible: bool) -> FileStateHandle:
    """The handle, if its storage can; UnsupportedError (``no-fast-duplicate``) otherwise."""
    if possible and isinstance(handle, FileStateHandle):
        return handle
    what = f"inline state {shown(handle.name)}" if isinstance(handle, ByteStreamStateHandle) else shown(handle.path)
    raise UnsupportedError(
        f"{what} cannot be duplicated within the storage",
        kind="no-fast-duplicate",
        hint="ask can_fast_duplicate first, and read and write the bytes where it says no",
    )


def _own_name(handle: StreamStateHandle, directory: str) -> str:
    """The name of a task-owned file; InvalidRequestError (``foreign-file``) for any other."""
    path = handle.path if isinstance(handle, FileStateHandle) else ""
    where, _, name = path.rpartition("/")
    if where != directory or not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"discarding {shown(path)}: expected a file that a task owns, in {directory}", kind="foreign-file"
        )
    return name
