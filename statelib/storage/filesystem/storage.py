"""Checkpoint storage on a local, shared or mounted file system.

Layout: ``<root>/<pipeline>/chk-<id>/`` and ``<target or root/savepoints>/savepoint-<pipeline>-<id>/``,
each with ``_metadata`` and data files named ``<attempt>-<subtask>-<number>``, flat; files that several
checkpoints of a pipeline may refer to lie in ``<root>/<pipeline>/shared/`` under such names.
Source: FsCheckpointStorageAccess, FsCheckpointStreamFactory; flink-formats.md section 4.8; R84 to R101.
"""

import contextlib
import itertools
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from statelib.errors import InvalidRequestError, NotFoundError
from statelib.model.handles import (
    ByteStreamStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from statelib.model.ids import AttemptId, CheckpointId, PipelineName, pipeline_name
from statelib.storage.filesystem.copies import copied_file, on_file_system_of
from statelib.storage.filesystem.data_files import DataFile, PipelineDirectory, remove_file
from statelib.storage.filesystem.descriptors import opened_directory
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.publish import METADATA_NAME, location_taken, put_if_absent, read_published
from statelib.storage.filesystem.task_owned import FileTaskOwned
from statelib.storage.names import (
    SAVEPOINTS_DIRECTORY,
    SHARED_DIRECTORY,
    checkpoint_directory,
    file_prefix,
    is_numbered,
    savepoint_directory,
)
from statelib.storage.streams import CheckpointStream
from statelib.storage.uris import local_path, parts_below, shown, to_uri
from statelib.storage.views import (
    CheckpointedStateScope,
    CheckpointStorageWorkerView,
    FileMergingSettings,
    PhysicalFile,
    StorageReference,
    WrittenStream,
)
from statelib.storage.wrappers.merging import FileMergingStorage, whole_files

DEFAULT_INLINE_THRESHOLD_BYTES = 20 * 1024
MAX_INLINE_THRESHOLD_BYTES = 1 << 20


def check_inline_threshold(size_bytes: int) -> None:
    """Raise InvalidRequestError (``bad-inline-threshold``) unless streams of that size may lie in ``_metadata``."""
    if not 0 <= size_bytes <= MAX_INLINE_THRESHOLD_BYTES:
        raise InvalidRequestError(
            f"inline threshold {size_bytes}: expected 0 to {MAX_INLINE_THRESHOLD_BYTES} bytes",
            kind="bad-inline-threshold",
        )


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
        check_inline_threshold(self.inline_threshold_bytes)

    def initialize_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        """Make ``chk-<id>``; ConflictError (``location-taken``) if a checkpoint was published there."""
        return _claim_directory(self.root, self.pipeline, checkpoint_directory(checkpoint_id))

    def initialize_savepoint_location(self, checkpoint_id: CheckpointId, target: str | None) -> StorageReference:
        """Make ``savepoint-<pipeline>-<id>`` under ``target``; ConflictError (``location-taken``) as above."""
        name = savepoint_directory(self.pipeline, checkpoint_id)
        if target is None:
            return _claim_directory(self.root, SAVEPOINTS_DIRECTORY, name)
        return _claim_directory(target, name)

    def publish_metadata(self, reference: StorageReference, data: bytes) -> bytes:
        return put_if_absent(reference.directory, METADATA_NAME, data)

    def read_metadata(self, reference: StorageReference) -> bytes:
        return read_published(reference.directory)

    def resolve_checkpoint_storage_location(
        self, checkpoint_id: CheckpointId, reference: StorageReference, attempt: AttemptId, subtask: int
    ) -> "FileSystemStreamFactory":
        """Raises NotFoundError (``no-location``) if nobody made the directory, or not for this host."""
        path = local_path(reference.directory or self.default_location(checkpoint_id).directory)
        if not os.path.isdir(path) or os.path.islink(path):
            raise NotFoundError(
                f"checkpoint {checkpoint_id}: no directory {path}",
                kind="no-location",
                hint="every Spark executor must see the storage under the same path",
            )
        root = local_path(self.root)
        own = parts_below(path, root) == (self.pipeline, checkpoint_directory(checkpoint_id))
        shared = PipelineDirectory(root, self.pipeline, SHARED_DIRECTORY) if own else None
        return FileSystemStreamFactory(path, attempt, subtask, self.inline_threshold_bytes, shared)

    def to_file_merging_storage(self, settings: FileMergingSettings) -> CheckpointStorageWorkerView:
        return FileMergingStorage(self, settings)

    def default_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        return StorageReference(f"{self.root.rstrip('/')}/{self.pipeline}/{checkpoint_directory(checkpoint_id)}")

    def create_task_owned_state_stream(self, attempt: AttemptId, subtask: int) -> CheckpointStream:
        return self.create_task_owned_checkpoint_state_toolset(attempt, subtask).create_stream()

    def create_task_owned_checkpoint_state_toolset(self, attempt: AttemptId, subtask: int) -> FileTaskOwned:
        return FileTaskOwned(self.root, self.pipeline, attempt, subtask, self.inline_threshold_bytes)


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
        shared: PipelineDirectory | None = None,
    ) -> None:
        self._directory = directory
        self._prefix = file_prefix(attempt, subtask)
        self.inline_threshold_bytes = inline_threshold_bytes
        self._shared = shared
        self._numbers = itertools.count()

    @property
    def is_of_pipeline(self) -> bool:
        """Whether it writes one of the pipeline's own checkpoints, not a savepoint."""
        return self._shared is not None

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointStream:
        name = self.new_name()
        return CheckpointStream(name, self.inline_threshold_bytes, lambda _size: self.new_file(name, scope))

    def flush(self) -> Mapping[str, PhysicalFile]:
        """Nothing is left to do: a stream's file is durable once its handle was taken."""
        return {}

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        return whole_files(earlier)

    def duplicate(self, original: StreamStateHandle, scope: CheckpointedStateScope) -> StreamStateHandle | None:
        file = on_file_system_of(original, self._directory)
        return None if file is None else copied_file(file, lambda: self.new_file(self.new_name(), scope))

    def new_name(self) -> str:
        return f"{self._prefix}{next(self._numbers)}"

    def new_file(self, name: str, scope: CheckpointedStateScope, *, absolute: bool = False) -> DataFile:
        if scope == CheckpointedStateScope.SHARED and self._shared is not None:
            self._shared.make()
            return DataFile(self._shared.path, name, absolute=True)
        return DataFile(self._directory, name, absolute=absolute)

    def uri_of(self, name: str, scope: CheckpointedStateScope) -> str:
        shared = self._shared if scope == CheckpointedStateScope.SHARED else None
        return to_uri(f"{self._directory if shared is None else shared.path}/{name}")

    def discard(self, handle: StreamStateHandle) -> None:
        """Raises InvalidRequestError (``foreign-file``) for a file that this factory did not name."""
        if isinstance(handle, ByteStreamStateHandle):
            return
        places = {to_uri(self._directory): self._directory}
        if self._shared is not None:
            places[to_uri(self._shared.path)] = self._shared.path
        where, _, name = handle.path.rpartition("/")
        if isinstance(handle, RelativeFileStateHandle):
            where, name = to_uri(self._directory), handle.path
        if isinstance(handle, SegmentFileStateHandle) or where not in places or not is_numbered(name, self._prefix):
            raise InvalidRequestError(
                f"discarding {shown(handle.path)}: expected a file named {self._prefix}<number> in "
                f"{' or '.join(places)}",
                kind="foreign-file",
            )
        remove_file(places[where], name)


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
        raise location_taken(where)
    return StorageReference(to_uri(where))
