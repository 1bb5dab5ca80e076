"""The ports of checkpoint storage: a coordinator view, a worker view, and the streams of both.

Source: CheckpointStorageCoordinatorView / CheckpointStorageWorkerView, requirements R84 to R101.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from statelib.model.handles import FilePart, StreamStateHandle
from statelib.model.ids import AttemptId, CheckpointId


class CheckpointedStateScope(StrEnum):
    SHARED = "SHARED"
    EXCLUSIVE = "EXCLUSIVE"


@dataclass(frozen=True)
class StorageReference:
    """Where one checkpoint goes. It is shipped with the trigger as bytes that are opaque to workers
    (``statelib.storage.references``).

    ``directory`` is the absolute URI of the directory that will hold ``_metadata``, '' for the default
    location, which follows from a storage's configuration and the checkpoint's id."""

    directory: str


DEFAULT_REFERENCE = StorageReference("")


@dataclass(frozen=True)
class PhysicalFile:
    """A file that holds the bytes of several streams, as a whole. ``crc32c`` and ``xxh3`` of all of them."""

    path: str
    size_bytes: int
    crc32c: int
    xxh3: int | None = None


@dataclass(frozen=True)
class WrittenStream:
    """A closed stream: its handle, and what was written. ``crc32c`` and ``xxh3`` of all bytes;
    ``xxh3`` is None of what was written before it was kept.

    ``physical``: of a segment, the file around it, once that is known. ``local_name``: the file with the
    same bytes in this host's local snapshot directory, None where there is none."""

    handle: StreamStateHandle
    size_bytes: int
    crc32c: int
    xxh3: int | None = None
    physical: PhysicalFile | None = None
    local_name: str | None = None


@dataclass(frozen=True)
class FileMergingSettings:
    """``max_file_size_bytes``: a physical file that has grown to it is followed by a new one.
    ``max_space_amplification``: the most that a physical file may be larger than those of its bytes that a
    checkpoint still refers to, as a factor >= 1; beyond it they are written anew."""

    max_file_size_bytes: int = 32 << 20
    max_space_amplification: float = 2.0


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

    def flush(self) -> Mapping[str, PhysicalFile]:
        """Make everything durable that closing its stream did not: the last step of a snapshot.

        Physical files by their path as in handles; where streams have files of their own, none."""
        ...

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        """Those of ``earlier`` checkpoints' streams that may be referred to again; the rest is to be written anew.

        ``earlier``: all that a snapshot would refer to, since how full a physical file is decides."""
        ...

    def duplicate(self, original: StreamStateHandle, scope: CheckpointedStateScope) -> StreamStateHandle | None:
        """Return a new file of this attempt with the bytes of an earlier snapshot's, which the storage itself copied;
        None where it cannot, and they must be read and written. ``original``: by its absolute URI.

        The bytes are not looked at: whoever reads the copy verifies it. Raises as any stream, and NotFoundError
        (``missing-file``), CorruptStateError (``size-mismatch``); then nothing is left of the copy."""
        ...


class CheckpointStateToolset(Protocol):
    """What a task can do where its own state lies."""

    def can_fast_duplicate(self, handle: StreamStateHandle) -> bool:
        """Whether the storage can copy the handle's bytes without their passing through this process."""
        ...

    def duplicate(self, handles: Sequence[StreamStateHandle]) -> tuple[StreamStateHandle, ...]:
        """Task-owned copies that live as long as their task wants, whatever becomes of the originals; all or none.

        The bytes are not looked at: whoever reads a copy verifies it. UnsupportedError (``no-fast-duplicate``),
        CorruptStateError (``size-mismatch``)."""
        ...

    def discard(self, handle: StreamStateHandle) -> None:
        """Remove task-owned data that no task needs any more; a file already gone is success. InvalidRequestError
        (``foreign-file``) for any other file."""
        ...


class CheckpointStorageWorkerView(Protocol):
    def resolve_checkpoint_storage_location(
        self, checkpoint_id: CheckpointId, reference: StorageReference, attempt: AttemptId, subtask: int
    ) -> CheckpointStreamFactory: ...

    def default_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        """What the default reference stands for."""
        ...

    def create_task_owned_state_stream(self, attempt: AttemptId, subtask: int) -> CheckpointOutputStream:
        """For data that outlives the checkpoint it was written for, such as a write-ahead log: its task removes it,
        nobody else does. ``attempt`` and ``subtask`` name its file. RetryableError (``storage-io``) and others as
        any stream, when it cannot be opened."""
        ...

    def create_task_owned_checkpoint_state_toolset(self, attempt: AttemptId, subtask: int) -> CheckpointStateToolset:
        """What else can be done in that place."""
        ...

    def to_file_merging_storage(self, settings: FileMergingSettings) -> "CheckpointStorageWorkerView":
        """The same storage, putting many small streams into few files; itself where it has no files to merge."""
        ...


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
    def check_crc(self, handle: StreamStateHandle, found: int) -> None:
        """``found``: the CRC-32C of a handle's bytes. CorruptStateError (``checksum-mismatch``) if another is known."""
        ...

    def locate(self, handle: FilePart) -> object:
        """Where the file lies; raises as said above before anything is touched."""
        ...

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        """Copy a handle's bytes into a new local file, verified while they stream."""
        ...


@runtime_checkable
class LinkingReader(StateReader, Protocol):
    """A reader that may have a handle's bytes on this host's disk already."""

    def link_to(self, handle: StreamStateHandle, local_path: str) -> None:
        """As :meth:`copy_to`, for a file that nobody will ever change: others may hold the same one. It may be known
        from when it was proved, and not be read again: to be used for formats that prove what is read of them."""
        ...
