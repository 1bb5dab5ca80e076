"""The ports of checkpoint storage: a coordinator view, a worker view, and the streams of both.

Source: CheckpointStorageCoordinatorView / CheckpointStorageWorkerView, requirements R84 to R101.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from statelib.model.handles import FileStateHandle, RelativeFileStateHandle, StreamStateHandle
from statelib.model.ids import AttemptId, CheckpointId


class CheckpointedStateScope(StrEnum):
    SHARED = "SHARED"
    EXCLUSIVE = "EXCLUSIVE"


@dataclass(frozen=True)
class StorageReference:
    """Where one checkpoint goes: opaque to workers, picklable, shipped with the trigger.

    ``directory`` is the absolute URI of the directory that will hold ``_metadata``."""

    directory: str


@dataclass(frozen=True)
class WrittenStream:
    """A closed stream: its handle, and what was written. ``crc32c`` of all bytes."""

    handle: StreamStateHandle
    size_bytes: int
    crc32c: int


class CheckpointOutputStream(Protocol):
    """Write, then :meth:`close_and_get_handle`; :meth:`close` without it drops the data for good."""

    def write(self, data: bytes | memoryview) -> None: ...
    def position(self) -> int: ...
    def close_and_get_handle(self) -> WrittenStream: ...
    def close(self) -> None: ...


class CheckpointStreamFactory(Protocol):
    """Opens the streams of one subtask's attempt at one checkpoint; names are never reused."""

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointOutputStream: ...
    def discard(self, handle: StreamStateHandle) -> None:
        """Remove what a failed attempt wrote; a file already gone is success."""
        ...


class CheckpointStorageWorkerView(Protocol):
    def resolve_checkpoint_storage_location(
        self, checkpoint_id: CheckpointId, reference: StorageReference, attempt: AttemptId, subtask: int
    ) -> CheckpointStreamFactory: ...


class CheckpointStorageCoordinatorView(Protocol):
    def initialize_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        """The directory ``chk-<id>`` of a checkpoint, created."""
        ...

    def initialize_savepoint_location(self, checkpoint_id: CheckpointId, target: str | None) -> StorageReference:
        """A new directory ``savepoint-<name>-<id>`` under ``target`` (default: the storage's own)."""
        ...

    def publish_metadata(self, reference: StorageReference, data: bytes) -> bytes:
        """Put ``_metadata`` if absent and return the bytes that are there afterwards: ``data``,
        or those of whoever was first. Durable when it returns."""
        ...

    def read_metadata(self, reference: StorageReference) -> bytes:
        """Raises NotFoundError (kind ``no-metadata``) where none is."""
        ...


class StateReader(Protocol):
    """Opens handles for reading, bound to the directory of one ``_metadata`` file; refuses any
    path outside the root it was made for (InvalidRequestError, kind ``outside-root``)."""

    def read(self, handle: StreamStateHandle) -> memoryview:
        """All bytes of a handle; NotFoundError (``missing-file``) or CorruptStateError
        (``size-mismatch``, ``checksum-mismatch`` where a checksum is known), naming the file."""
        ...

    def read_range(self, handle: StreamStateHandle, start: int, stop: int) -> memoryview: ...
    def locate(self, handle: FileStateHandle | RelativeFileStateHandle) -> object:
        """Where the file lies; raises as said above before anything is touched."""
        ...

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        """Copy a handle's bytes into a new local file, verified while they stream."""
        ...
