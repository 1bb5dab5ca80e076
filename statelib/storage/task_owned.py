"""State that belongs to a task, not to a checkpoint: written, duplicated and removed by tasks only (R89 to R93).

It lies in ``<pipeline>/taskowned/``, which retention, gc and the orphan sweep leave alone. Files there never
change and each has its own blocks or object, so a duplicate and its original live and die apart.
"""

import re
from collections.abc import Sequence

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, StreamStateHandle
from statelib.model.ids import AttemptId, PipelineName
from statelib.storage.filesystem.copies import copied_file, on_file_system_of
from statelib.storage.filesystem.data_files import DataFile, PipelineDirectory, remove_file
from statelib.storage.names import TASK_OWNED_DIRECTORY, task_owned_name
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.copies import copy_object, in_bucket_of
from statelib.storage.objects.spool import SpooledObject
from statelib.storage.objects.uris import ObjectLocation
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
        return on_file_system_of(handle, self._root) is not None

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
        return copied_file(handle, lambda: self._new_file(task_owned_name(*self._try)))


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
        return in_bucket_of(handle, self._directory) is not None

    def duplicate(self, handles: Sequence[StreamStateHandle]) -> tuple[StreamStateHandle, ...]:
        sources = [duplicable(handle, self.can_fast_duplicate(handle)) for handle in handles]
        targets = [self._directory.below(task_owned_name(*self._try)) for _ in sources]
        try:
            for source, target in zip(sources, targets, strict=True):
                copy_object(self._objects, source, target)
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
