"""Checkpoint storage in the memory of one process, for tests (R97).

Streams become inline handles, so all state of a checkpoint travels inside its metadata. Source:
docs/spec/requirements.md R84 to R101; MemoryBackendCheckpointStorageAccess, MemCheckpointStreamFactory.
"""

import itertools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from statelib.errors import ConflictError, InvalidRequestError, NotFoundError, UnsupportedError
from statelib.model.handles import ByteStreamStateHandle, FilePart, StreamStateHandle
from statelib.model.ids import AttemptId, CheckpointId, PipelineName, pipeline_name
from statelib.storage.filesystem.reader import copy_inline, range_of
from statelib.storage.names import task_owned_name
from statelib.storage.ports.views import (
    CheckpointedStateScope,
    CheckpointStorageWorkerView,
    FileMergingSettings,
    PhysicalFile,
    StorageReference,
    WrittenStream,
)
from statelib.storage.streams import CheckpointStream, SpilledFile
from statelib.storage.task_owned import duplicable
from statelib.storage.uris import shown
from statelib.storage.wrappers.merging import whole_files

DEFAULT_MAX_STATE_BYTES = 5 * 1024 * 1024


class MemoryCheckpointStorage:
    """Both views of a checkpoint storage within one process. Published metadata lives as long as this object.
    Thread-safe, not picklable."""

    def __init__(self, pipeline: PipelineName, max_state_bytes: int = DEFAULT_MAX_STATE_BYTES) -> None:
        self._pipeline = pipeline_name(pipeline)
        self._max_state_bytes = max_state_bytes
        self._lock = threading.Lock()
        self._metadata: dict[str, bytes | None] = {}

    def initialize_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        return self._claim(self.default_location(checkpoint_id).directory)

    def initialize_savepoint_location(self, checkpoint_id: CheckpointId, target: str | None) -> StorageReference:
        """Return a new location. ``target`` is only the beginning of its name: no directory is made."""
        return self._claim(f"{target or 'memory:/savepoints'}/savepoint-{self._pipeline}-{checkpoint_id}")

    def publish_metadata(self, reference: StorageReference, data: bytes) -> bytes:
        with self._lock:
            present = self._location(reference)
            if present is None:
                present = self._metadata[reference.directory] = bytes(data)
            return present

    def read_metadata(self, reference: StorageReference) -> bytes:
        with self._lock:
            present = self._location(reference)
        if present is None:
            raise NotFoundError(f"{reference.directory}: nothing was published here", kind="no-metadata")
        return present

    def resolve_checkpoint_storage_location(
        self, checkpoint_id: CheckpointId, reference: StorageReference, attempt: AttemptId, subtask: int
    ) -> "MemoryStreamFactory":
        directory = reference.directory or self.default_location(checkpoint_id).directory
        with self._lock:
            self._location(StorageReference(directory))
        return MemoryStreamFactory(f"{checkpoint_id}-{attempt}-{subtask}-", self._max_state_bytes)

    def default_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        return StorageReference(f"memory:/{self._pipeline}/chk-{checkpoint_id}")

    def create_task_owned_state_stream(self, attempt: AttemptId, subtask: int) -> CheckpointStream:
        return self.create_task_owned_checkpoint_state_toolset(attempt, subtask).create_stream()

    def create_task_owned_checkpoint_state_toolset(self, attempt: AttemptId, subtask: int) -> "MemoryTaskOwned":
        return MemoryTaskOwned(lambda: task_owned_name(attempt, subtask), self._max_state_bytes)

    def to_file_merging_storage(
        self,
        settings: FileMergingSettings,  # noqa: ARG002 - the port's signature
    ) -> CheckpointStorageWorkerView:
        """Return this storage itself, because it has no files to merge."""
        return self

    def _claim(self, directory: str) -> StorageReference:
        with self._lock:
            if self._metadata.get(directory) is not None:
                raise ConflictError(f"{directory}: a checkpoint was published here already", kind="location-taken")
            self._metadata[directory] = None
        return StorageReference(directory)

    def _location(self, reference: StorageReference) -> bytes | None:
        if reference.directory not in self._metadata:
            raise NotFoundError(f"{shown(reference.directory)}: no such location", kind="no-location")
        return self._metadata[reference.directory]


class MemoryStreamFactory:
    """A factory of streams that stay inline. A stream larger than the limit is refused."""

    def __init__(self, prefix: str, max_state_bytes: int) -> None:
        self._prefix = prefix
        self._max_state_bytes = max_state_bytes
        self._numbers = itertools.count()

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointStream:
        """Return a new stream. Both scopes are alike, because inline bytes belong to the holder of the handle."""
        name = f"{scope.lower()}-{self._prefix}{next(self._numbers)}"
        return CheckpointStream(name, self._max_state_bytes, _refuse(self._max_state_bytes))

    def discard(self, handle: StreamStateHandle) -> None:
        """Do nothing: the bytes are only in the handle."""

    def flush(self) -> Mapping[str, PhysicalFile]:
        return {}

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        return whole_files(earlier)

    def duplicate(
        self,
        original: StreamStateHandle,  # noqa: ARG002 - the port's signature
        scope: CheckpointedStateScope,  # noqa: ARG002
    ) -> StreamStateHandle | None:
        """Return None: without files, nothing can be copied."""
        return None


class MemoryTaskOwned:
    """Task-owned streams whose bytes belong to the holder of the handle, so that none is duplicated or removed."""

    def __init__(self, name: Callable[[], str], max_state_bytes: int) -> None:
        self._name = name
        self._max_state_bytes = max_state_bytes

    def create_stream(self) -> CheckpointStream:
        return CheckpointStream(self._name(), self._max_state_bytes, _refuse(self._max_state_bytes))

    def can_fast_duplicate(self, handle: StreamStateHandle) -> bool:  # noqa: ARG002 - the port's signature
        return False

    def duplicate(self, handles: Sequence[StreamStateHandle]) -> tuple[StreamStateHandle, ...]:
        return tuple(duplicable(handle, False) for handle in handles)

    def discard(self, handle: StreamStateHandle) -> None:
        """Do nothing: the bytes are only in the handle."""


def _refuse(max_state_bytes: int) -> Callable[[int], SpilledFile]:
    def refuse(size_bytes: int) -> SpilledFile:
        raise InvalidRequestError(
            f"state of at least {size_bytes} bytes: memory storage takes at most {max_state_bytes} per stream",
            kind="state-too-large",
            hint="use file-system storage",
        )

    return refuse


class MemoryReader:
    """A reader of inline handles. Raises UnsupportedError (``not-in-memory``) for the handle of a file."""

    def read(self, handle: StreamStateHandle) -> memoryview:
        return memoryview(_inline(handle).data)

    def read_range(self, handle: StreamStateHandle, start: int, stop: int) -> memoryview:
        inline = _inline(handle)
        start, stop = range_of(start, stop, inline.size_bytes, inline.name)
        return memoryview(inline.data)[start:stop]

    def check_crc(self, handle: StreamStateHandle, crc: int) -> None:
        """Do nothing: memory storage records no checksums."""

    def locate(self, handle: FilePart) -> object:
        return _inline(handle)

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        copy_inline(_inline(handle), local_path)


def _inline(handle: StreamStateHandle) -> ByteStreamStateHandle:
    if isinstance(handle, ByteStreamStateHandle):
        return handle
    raise UnsupportedError(f"{shown(handle.path)}: memory storage holds no files", kind="not-in-memory")
