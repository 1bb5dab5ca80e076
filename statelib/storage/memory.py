"""Checkpoint storage in memory: for tests and for trying things out (R97).

Streams become inline handles, so all state of a checkpoint travels inside its metadata.
Source: MemoryBackendCheckpointStorageAccess, MemCheckpointStreamFactory.
"""

import itertools
import threading

from statelib.errors import ConflictError, InvalidRequestError, NotFoundError, UnsupportedError
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from statelib.model.ids import AttemptId, CheckpointId, PipelineName, pipeline_name
from statelib.storage.reader import copy_inline, range_of
from statelib.storage.streams import CheckpointStream, SpilledFile
from statelib.storage.uris import shown
from statelib.storage.views import CheckpointedStateScope, StorageReference

DEFAULT_MAX_STATE_BYTES = 5 * 1024 * 1024


class MemoryCheckpointStorage:
    """Both views in one process: metadata lives as long as this object. Thread-safe, not picklable."""

    def __init__(self, pipeline: PipelineName, max_state_bytes: int = DEFAULT_MAX_STATE_BYTES) -> None:
        self._pipeline = pipeline_name(pipeline)
        self._max_state_bytes = max_state_bytes
        self._lock = threading.Lock()
        self._metadata: dict[str, bytes | None] = {}

    def initialize_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        return self._claim(f"memory:/{self._pipeline}/chk-{checkpoint_id}")

    def initialize_savepoint_location(self, checkpoint_id: CheckpointId, target: str | None) -> StorageReference:
        """``target`` is only a name here."""
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
        with self._lock:
            self._location(reference)
        return MemoryStreamFactory(f"{checkpoint_id}-{attempt}-{subtask}-", self._max_state_bytes)

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
    """Streams that stay inline, up to a limit."""

    def __init__(self, prefix: str, max_state_bytes: int) -> None:
        self._prefix = prefix
        self._max_state_bytes = max_state_bytes
        self._numbers = itertools.count()

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointStream:
        """Both scopes: inline bytes belong to whoever holds the handle."""
        name = f"{scope.lower()}-{self._prefix}{next(self._numbers)}"
        return CheckpointStream(name, self._max_state_bytes, self._refuse)

    def discard(self, handle: StreamStateHandle) -> None:
        """Nothing lies anywhere but in the handle."""

    def _refuse(self, size_bytes: int) -> SpilledFile:
        raise InvalidRequestError(
            f"state of at least {size_bytes} bytes: memory storage takes at most {self._max_state_bytes} a stream",
            kind="state-too-large",
            hint="use file-system storage",
        )


class MemoryReader:
    """Reads inline handles; a handle of a file is UnsupportedError (``not-in-memory``)."""

    def read(self, handle: StreamStateHandle) -> memoryview:
        return memoryview(_inline(handle).data)

    def read_range(self, handle: StreamStateHandle, start: int, stop: int) -> memoryview:
        inline = _inline(handle)
        start, stop = range_of(start, stop, inline.size_bytes, inline.name)
        return memoryview(inline.data)[start:stop]

    def locate(self, handle: FileStateHandle | RelativeFileStateHandle) -> object:
        return _inline(handle)

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        copy_inline(_inline(handle), local_path)


def _inline(handle: StreamStateHandle) -> ByteStreamStateHandle:
    if isinstance(handle, ByteStreamStateHandle):
        return handle
    raise UnsupportedError(f"{shown(handle.path)}: memory storage holds no files", kind="not-in-memory")
