"""The ports of checkpoint storage: a coordinator view, a worker view, and the streams and readers of both.

Each method names the errors that its callers handle. Besides those, every method that does I/O raises RetryableError
(``storage-io``, ``storage-full``) while the storage is in trouble, and InvalidRequestError (``storage-denied``) where
access is refused.

Source: CheckpointStorageCoordinatorView / CheckpointStorageWorkerView, docs/spec/requirements.md R84 to R101.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from statelib.model.handles import FilePart, StreamStateHandle
from statelib.model.ids import AttemptId, CheckpointId


class CheckpointedStateScope(StrEnum):
    """Who may refer to a file. SHARED: several checkpoints of the pipeline. EXCLUSIVE: only the checkpoint that wrote
    it."""

    SHARED = "SHARED"
    EXCLUSIVE = "EXCLUSIVE"


@dataclass(frozen=True)
class StorageReference:
    """The location of one checkpoint. The trigger ships it to the workers as opaque bytes
    (:mod:`statelib.storage.references`).

    ``directory`` is the absolute URI of the directory that will hold ``_metadata``. The empty text stands for the
    default location, which follows from the storage's configuration and the checkpoint's id."""

    directory: str


DEFAULT_REFERENCE = StorageReference("")


@dataclass(frozen=True)
class PhysicalFile:
    """A whole file that holds the bytes of several streams. ``crc32c`` and ``xxh3`` are the checksums of the whole
    file."""

    path: str
    size_bytes: int
    crc32c: int
    xxh3: int | None = None


@dataclass(frozen=True)
class WrittenStream:
    """A closed stream: its handle, its size and its checksums.

    ``crc32c`` and ``xxh3`` are the checksums of all bytes of the stream. ``xxh3`` is None where it was not recorded,
    as in snapshots of earlier versions.
    ``physical`` is the file around a segment, None while that file is not complete and for any other stream.
    ``local_name`` is the name of the file with the same bytes in this host's local snapshot directory, None where
    there is no such file."""

    handle: StreamStateHandle
    size_bytes: int
    crc32c: int
    xxh3: int | None = None
    physical: PhysicalFile | None = None
    local_name: str | None = None


@dataclass(frozen=True)
class FileMergingSettings:
    """The limits of merging many small streams into few physical files.

    ``max_file_size_bytes``: when a physical file would grow beyond this size, a new file is begun.
    ``max_space_amplification``: the size of a physical file, divided by the bytes in it to which a checkpoint still
    refers, is at most this factor (>= 1). Beyond it, those bytes are written anew."""

    max_file_size_bytes: int = 32 << 20
    max_space_amplification: float = 2.0


class CheckpointOutputStream(Protocol):
    """The output stream of one piece of state. :meth:`close_and_get_handle` completes it; :meth:`close` before that
    drops its data for good.

    One thread writes; any thread may call :meth:`close`, which ends the writing."""

    def write(self, data: bytes | memoryview) -> None:
        """Append ``data``. Raises RetryableError (``cancelled``) if the stream was closed."""
        ...

    def position(self) -> int:
        """Return the number of bytes that were written so far."""
        ...

    def close_and_get_handle(self) -> WrittenStream:
        """Complete the stream and return its handle. If this raises, nothing of the stream is left in the storage.

        Raises RetryableError (``cancelled``) if the stream was closed."""
        ...

    def close(self) -> None:
        """Drop the data, unless :meth:`close_and_get_handle` has returned. A second call does nothing."""
        ...


class CheckpointStreamFactory(Protocol):
    """Opens the streams of one subtask's attempt at one checkpoint. File names are never reused."""

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointOutputStream:
        """Return a new, empty stream whose file has the given scope."""
        ...

    def discard(self, handle: StreamStateHandle) -> None:
        """Remove a file that this factory created. It succeeds if the file is gone already.

        Raises InvalidRequestError (``foreign-file``) for a file that this factory did not create."""
        ...

    def flush(self) -> Mapping[str, PhysicalFile]:
        """Make durable what closing a stream did not make durable. It is the last step of a snapshot.

        Return the physical files by their path, as the path is written in handles. The result is empty where each
        stream has a file of its own."""
        ...

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        """Return the handles of ``earlier`` checkpoints' streams to which a new snapshot may refer. The caller writes
        all other streams anew.

        ``earlier`` must hold all streams to which the snapshot would refer, because the decision depends on how many
        bytes of a physical file are still needed."""
        ...

    def duplicate(self, original: StreamStateHandle, scope: CheckpointedStateScope) -> StreamStateHandle | None:
        """Copy a file of an earlier snapshot within the storage, into a new file of this attempt, and return the
        handle of the copy. Return None where the storage cannot copy the file; then the caller reads and writes the
        bytes.

        ``original`` holds the absolute URI of the file. The bytes are not verified: the reader of the copy verifies
        them. Nothing is left of a copy that fails. Raises NotFoundError (``missing-file``), CorruptStateError
        (``size-mismatch``)."""
        ...


class CheckpointStateToolset(Protocol):
    """The operations on task-owned state besides writing it."""

    def can_fast_duplicate(self, handle: StreamStateHandle) -> bool:
        """Return whether the storage can copy the handle's bytes, so that they do not pass through this process."""
        ...

    def duplicate(self, handles: Sequence[StreamStateHandle]) -> tuple[StreamStateHandle, ...]:
        """Copy files into new task-owned files, and return the handles of the copies in the same order. If one copy
        fails, the others are removed.

        A copy does not depend on its original, which may be removed at any time. The bytes are not verified: the
        reader of a copy verifies them. Raises UnsupportedError (``no-fast-duplicate``) for a handle that the storage
        cannot copy, CorruptStateError (``size-mismatch``)."""
        ...

    def discard(self, handle: StreamStateHandle) -> None:
        """Remove task-owned data that no task needs any more. It succeeds if the file is gone already.

        Raises InvalidRequestError (``foreign-file``) for any other file."""
        ...


class CheckpointStorageWorkerView(Protocol):
    """The part of a checkpoint storage that a subtask uses: it opens streams and publishes nothing."""

    def resolve_checkpoint_storage_location(
        self, checkpoint_id: CheckpointId, reference: StorageReference, attempt: AttemptId, subtask: int
    ) -> CheckpointStreamFactory:
        """Return the stream factory of one subtask's attempt at a checkpoint.

        Raises NotFoundError (``no-location``) where the coordinator did not initialize the location, or this worker
        cannot see it."""
        ...

    def default_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        """Return the location for which the default reference stands. No I/O is done."""
        ...

    def create_task_owned_state_stream(self, attempt: AttemptId, subtask: int) -> CheckpointOutputStream:
        """Return a new stream for data that outlives the checkpoint for which it is written, such as a model. Later
        snapshots of the task decide how long it is kept, by naming it.

        ``attempt`` and ``subtask`` become part of the file's name."""
        ...

    def create_task_owned_checkpoint_state_toolset(self, attempt: AttemptId, subtask: int) -> CheckpointStateToolset:
        """Return the toolset for task-owned state, which copies and removes it."""
        ...

    def to_file_merging_storage(self, settings: FileMergingSettings) -> "CheckpointStorageWorkerView":
        """Return a view of the same storage that merges many small streams into few files. A storage without files
        returns itself."""
        ...


class CheckpointStorageCoordinatorView(Protocol):
    """The part of a checkpoint storage that the coordinator uses: it initializes locations and publishes
    ``_metadata``."""

    def initialize_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        """Create the directory ``chk-<id>`` of a checkpoint and return its location. The call may be repeated until
        ``_metadata`` is published there.

        Raises ConflictError (``location-taken``) if it is published already."""
        ...

    def initialize_savepoint_location(self, checkpoint_id: CheckpointId, target: str | None) -> StorageReference:
        """Create the directory ``savepoint-<name>-<id>`` under ``target`` and return its location. ``target`` is an
        absolute path or URI; None stands for the storage's own directory of savepoints.

        Raises ConflictError (``location-taken``) if ``_metadata`` is published there already."""
        ...

    def publish_metadata(self, reference: StorageReference, data: bytes) -> bytes:
        """Store ``data`` as ``_metadata`` unless ``_metadata`` exists. Return the bytes that ``_metadata`` holds
        afterwards: ``data``, or the bytes of the writer that published first.

        The bytes are durable when it returns. Two writers never overwrite each other."""
        ...

    def read_metadata(self, reference: StorageReference) -> bytes:
        """Return the bytes of ``_metadata``. Raises NotFoundError (``no-metadata``) if it does not exist."""
        ...


class StateReader(Protocol):
    """Reads the bytes of handles. A reader belongs to the directory of one ``_metadata`` file and to the roots with
    which it was made.

    A method that reads or locates a file raises InvalidRequestError (``outside-root``) for a path outside of them,
    before any I/O is done."""

    def read(self, handle: StreamStateHandle) -> memoryview:
        """Return all bytes of a handle, verified.

        Raises, with the name of the file: NotFoundError (``missing-file``); CorruptStateError (``size-mismatch``, and
        ``checksum-mismatch`` where the reader has a checksum of the handle)."""
        ...

    def read_range(self, handle: StreamStateHandle, start: int, stop: int) -> memoryview:
        """Return the bytes ``start`` (inclusive) to ``stop`` (exclusive) of a handle. The size of the file is
        verified, its checksum need not be.

        Raises like :meth:`read`, and CorruptStateError (``bad-range``) unless 0 <= start <= stop <= size."""
        ...

    def check_crc(self, handle: StreamStateHandle, crc: int) -> None:
        """Compare ``crc``, the CRC-32C of the bytes that the caller has read, with the recorded checksum of the handle.
        A handle without a recorded checksum passes.

        Raises CorruptStateError (``checksum-mismatch``) if they differ."""
        ...

    def locate(self, handle: FilePart) -> object:
        """Return the place of the handle's file, in the form that the storage itself uses. No I/O is done."""
        ...

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        """Copy a handle's bytes into a new local file. They are verified like those of :meth:`read` while they are
        copied, and nothing is left of a copy that fails.

        Raises like :meth:`read`, and ConflictError (``name-taken``) if the local file exists."""
        ...


@runtime_checkable
class LinkingReader(StateReader, Protocol):
    """A reader that may have a handle's bytes on this host's disk already."""

    def link_to(self, handle: StreamStateHandle, local_path: str) -> None:
        """Make a handle's bytes available as the local file ``local_path``, as :meth:`copy_to` does, but perhaps as a
        hard link to a file that other links share. The caller must never change the file.

        A file that was verified earlier and has not changed since may be linked without reading it again. Therefore
        this method is only for formats whose own checksums are compared when they are read."""
        ...
