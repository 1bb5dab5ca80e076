"""Checkpoint storage on a local, shared or mounted file system.

Layout: ``<root>/<pipeline>/chk-<id>/`` and ``<target or root/savepoints>/savepoint-<pipeline>-<id>/``. Each of these
directories holds ``_metadata`` and data files named ``<attempt>-<subtask>-<number>``, without subdirectories. Files to
which several checkpoints of a pipeline may refer have such names too and lie in ``<root>/<pipeline>/shared/``. Source:
FsCheckpointStorageAccess, FsCheckpointStreamFactory; docs/spec/formats.md#directories; docs/spec/requirements.md R84 to
R101.
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
from statelib.model.ids import SAVEPOINTS_DIRECTORY, AttemptId, CheckpointId, PipelineName, pipeline_name
from statelib.storage.filesystem.copies import copied_file, on_file_system_of
from statelib.storage.filesystem.data_files import DataFile, PipelineDirectory, remove_file
from statelib.storage.filesystem.descriptors import opened_directory
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.publish import location_taken, put_if_absent, read_published
from statelib.storage.filesystem.task_owned import FileTaskOwned
from statelib.storage.names import (
    METADATA_NAME,
    SHARED_DIRECTORY,
    checkpoint_directory,
    file_prefix,
    is_numbered,
    savepoint_directory,
)
from statelib.storage.ports.views import (
    CheckpointedStateScope,
    CheckpointStorageWorkerView,
    FileMergingSettings,
    PhysicalFile,
    StorageReference,
    WrittenStream,
)
from statelib.storage.streams import CheckpointStream
from statelib.storage.uris import local_path, parts_below, shown, to_uri
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
    """The coordinator view and the worker view of the checkpoints of one pipeline.

    ``root`` is an absolute path or ``file:`` URI; the field holds the URI. Streams of at most
    ``inline_threshold_bytes`` become inline handles. Constructing it does no I/O; it is a value and can be pickled."""

    root: str
    pipeline: PipelineName
    inline_threshold_bytes: int = DEFAULT_INLINE_THRESHOLD_BYTES

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", to_uri(self.root))
        pipeline_name(self.pipeline)
        check_inline_threshold(self.inline_threshold_bytes)

    def initialize_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        """Create ``chk-<id>`` and return its location. Raises ConflictError (``location-taken``) if a checkpoint was
        published there."""
        return _claim_directory(self.root, self.pipeline, checkpoint_directory(checkpoint_id))

    def initialize_savepoint_location(self, checkpoint_id: CheckpointId, target: str | None) -> StorageReference:
        """Create ``savepoint-<pipeline>-<id>`` under ``target`` and return its location. Raises ConflictError
        (``location-taken``) if a snapshot was published there."""
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
        """Return the stream factory of one subtask's attempt. Raises NotFoundError (``no-location``) if the directory
        does not exist on this host."""
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
    """A :class:`~statelib.storage.ports.views.CheckpointStreamFactory` of one subtask's attempt. If two processes use
    the same attempt id, the second one fails with ConflictError (``name-taken``) and overwrites nothing.

    Files of scope SHARED lie in ``shared`` and have absolute handles. Files of scope EXCLUSIVE lie beside
    ``_metadata`` and have relative handles. Without ``shared`` every file is exclusive: a savepoint refers to no file
    outside its directory."""

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
        """Whether the streams belong to one of the pipeline's own checkpoints, not to a savepoint."""
        return self._shared is not None

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointStream:
        name = self.new_name()
        return CheckpointStream(name, self.inline_threshold_bytes, lambda _size: self.new_file(name, scope))

    def flush(self) -> Mapping[str, PhysicalFile]:
        """Return an empty result, because the file of a stream is durable once its handle was taken."""
        return {}

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        return whole_files(earlier)

    def duplicate(self, original: StreamStateHandle, scope: CheckpointedStateScope) -> StreamStateHandle | None:
        file = on_file_system_of(original, self._directory)
        return None if file is None else copied_file(file, lambda: self.new_file(self.new_name(), scope))

    def new_name(self) -> str:
        """Return a new file name of this attempt: ``<attempt>-<subtask>-<number>``."""
        return f"{self._prefix}{next(self._numbers)}"

    def new_file(self, name: str, scope: CheckpointedStateScope, *, absolute: bool = False) -> DataFile:
        """Create a file. With ``absolute``, its handle is absolute in either scope."""
        if scope == CheckpointedStateScope.SHARED and self._shared is not None:
            self._shared.make()
            return DataFile(self._shared.path, name, absolute=True)
        return DataFile(self._directory, name, absolute=absolute)

    def uri_of(self, name: str, scope: CheckpointedStateScope) -> str:
        """Return the URI of the file that :meth:`new_file` creates for this name and scope."""
        shared = self._shared if scope == CheckpointedStateScope.SHARED else None
        return to_uri(f"{self._directory if shared is None else shared.path}/{name}")

    def discard(self, handle: StreamStateHandle) -> None:
        """Remove a file of this attempt. It succeeds if the file is gone already. Inline state has no file to remove.

        Raises InvalidRequestError (``foreign-file``) for a file that this factory did not create."""
        if isinstance(handle, ByteStreamStateHandle):
            return
        paths = {to_uri(self._directory): self._directory}
        if self._shared is not None:
            paths[to_uri(self._shared.path)] = self._shared.path
        parent, _, name = handle.path.rpartition("/")
        if isinstance(handle, RelativeFileStateHandle):
            parent, name = to_uri(self._directory), handle.path
        if isinstance(handle, SegmentFileStateHandle) or parent not in paths or not is_numbered(name, self._prefix):
            raise InvalidRequestError(
                f"discarding {shown(handle.path)}: expected a file named {self._prefix}<number> in "
                f"{' or '.join(paths)}",
                kind="foreign-file",
            )
        remove_file(paths[parent], name)


def _claim_directory(root: str, *parts: str) -> StorageReference:
    """Create a directory durably and return its location. The directory may exist, since the call may be repeated after
    a crash. Raise ConflictError (``location-taken``) if it holds ``_metadata``."""
    root_path = local_path(root)
    path = "/".join((root_path.rstrip("/"), *parts))
    with (
        storage_errors(f"making {path}"),
        opened_directory(root_path, parts, create=True) as directory,
        contextlib.suppress(FileNotFoundError),
    ):
        os.stat(METADATA_NAME, dir_fd=directory, follow_symlinks=False)
        raise location_taken(path)
    return StorageReference(to_uri(path))
