"""Merging many small streams into few physical files. Only the worker merges; the coordinator needs no support for it
(R94, R102).

The streams of one subtask with the same checkpoint and scope lie one after the other in one physical file. A later
checkpoint refers to segments of earlier files, until too few bytes of an earlier file are needed. Source:
FsMergingCheckpointStorageAccess, FileMergingSnapshotManager; docs/spec/formats.md#file-merging.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from statelib.errors import InvalidRequestError, RetryableError
from statelib.model.handles import FileStateHandle, SegmentFileStateHandle, SegmentScope, StreamStateHandle
from statelib.model.ids import AttemptId, CheckpointId
from statelib.storage.ports.views import (
    CheckpointedStateScope,
    CheckpointOutputStream,
    CheckpointStateToolset,
    CheckpointStorageWorkerView,
    CheckpointStreamFactory,
    FileMergingSettings,
    PhysicalFile,
    StorageReference,
    WrittenStream,
)
from statelib.storage.streams import CheckpointStream, InterruptibleFile, SpilledFile
from statelib.storage.uris import shown
from statelib.wire.checksum import ContentHash

MAX_MERGED_BYTES = 4 << 20
"""The most bytes of a stream that is merged. A stream is held in memory up to this size; a larger one gets a file of
its own."""

_SCOPES = {
    CheckpointedStateScope.EXCLUSIVE: SegmentScope.EXCLUSIVE,
    CheckpointedStateScope.SHARED: SegmentScope.SHARED,
}


class MergeableStreams(Protocol):
    """The operations that merging needs from the stream factory of a storage with files."""

    @property
    def inline_threshold_bytes(self) -> int:
        """The size in bytes of the largest stream that becomes an inline handle."""
        ...

    def new_name(self) -> str:
        """Return a name that no other file of this attempt has."""
        ...

    def new_file(self, name: str, scope: CheckpointedStateScope, *, absolute: bool) -> SpilledFile:
        """Create a file of that name. With ``absolute``, its handle is a :class:`FileStateHandle` in either scope."""
        ...

    def uri_of(self, name: str, scope: CheckpointedStateScope) -> str:
        """Return the path in the absolute handle of such a file."""
        ...

    def discard(self, handle: StreamStateHandle) -> None: ...
    def duplicate(self, original: StreamStateHandle, scope: CheckpointedStateScope) -> StreamStateHandle | None: ...


class MergingStreamFactory:
    """A :class:`~statelib.storage.ports.views.CheckpointStreamFactory` of one subtask's attempt. It merges streams into
    files of ``streams``, the storage's own factory.

    A stream's bytes are written to a physical file when its handle is taken, so a dropped stream leaves no bytes there.
    A physical file is removed when all its segments are discarded. Thread-safe."""

    def __init__(self, streams: MergeableStreams, settings: FileMergingSettings) -> None:
        _check_settings(settings)
        self._streams = streams
        self._settings = settings
        self._lock = threading.Lock()
        self._open: dict[CheckpointedStateScope, _PhysicalFile] = {}
        self._files: dict[str, _PhysicalFile] = {}

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointStream:
        name = self._streams.new_name()

        def spill(_size_bytes: int) -> SpilledFile:
            limit = min(MAX_MERGED_BYTES, self._settings.max_file_size_bytes)
            own = self._streams
            return _MergedStream(limit, lambda data: self._append(name, scope, data), _own_file(own, name, scope))

        return CheckpointStream(name, self._streams.inline_threshold_bytes, spill)

    def discard(self, handle: StreamStateHandle) -> None:
        """Discard a file or a segment. A physical file is removed with its last segment.

        Raises InvalidRequestError (``foreign-file``) for a file, or a segment of one, that this factory did not
        create."""
        if not isinstance(handle, SegmentFileStateHandle):
            self._streams.discard(handle)
            return
        with self._lock:
            file = self._files.get(handle.path)
            if file is None:
                raise InvalidRequestError(
                    f"discarding a segment of {shown(handle.path)}: expected a file of this attempt",
                    kind="foreign-file",
                )
            file.living.discard(handle)
            if not file.living:
                self._remove(file)

    def flush(self) -> Mapping[str, PhysicalFile]:
        with self._lock:
            for file in list(self._open.values()):
                self._finish(file)
            living = {path: file for path, file in self._files.items() if file.living}
            for path, file in living.items():
                if not file.finished:
                    raise RetryableError(f"{path}: a segment of it could not be written", kind="storage-io")
            return {path: file.facts() for path, file in living.items()}

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        return dense(earlier, self._settings.max_space_amplification)

    def duplicate(self, original: StreamStateHandle, scope: CheckpointedStateScope) -> StreamStateHandle | None:
        """Copy a file within the storage. The copy has a file of its own, even if it is small enough to be merged."""
        return self._streams.duplicate(original, scope)

    def _append(self, name: str, scope: CheckpointedStateScope, data: bytearray) -> SegmentFileStateHandle:
        with self._lock:
            file = self._open.get(scope)
            if file is not None and file.size_bytes + len(data) > self._settings.max_file_size_bytes:
                self._finish(file)
                file = None
            if file is None:
                file = self._begin(scope)
            try:
                return file.append(name, data)
            except BaseException:
                self._open.pop(scope)  # it is unknown how much was written, so nothing more is appended
                if not file.living:
                    self._remove(file)
                raise

    def _begin(self, scope: CheckpointedStateScope) -> "_PhysicalFile":
        name = self._streams.new_name()
        target = self._streams.new_file(name, scope, absolute=True)
        file = _PhysicalFile(self._streams.uri_of(name, scope), scope, target)
        self._open[scope] = self._files[file.path] = file
        return file

    def _finish(self, file: "_PhysicalFile") -> None:
        self._open.pop(file.scope)
        file.finish()

    def _remove(self, file: "_PhysicalFile") -> None:
        if self._open.get(file.scope) is file:
            del self._open[file.scope]
        if file.finished:
            self._streams.discard(FileStateHandle(file.path, file.size_bytes))
        else:
            file.drop()


class _PhysicalFile:
    """A file of segments that lie one after the other. ``living``: the segments that were not discarded."""

    def __init__(self, path: str, scope: CheckpointedStateScope, target: SpilledFile) -> None:
        self.path = path
        self.scope = scope
        self.size_bytes = 0
        self.living: set[SegmentFileStateHandle] = set()
        self.finished = False
        self._target = target
        self._content = ContentHash()

    def append(self, name: str, data: bytearray) -> SegmentFileStateHandle:
        self._target.write(data)
        handle = SegmentFileStateHandle(self.path, self.size_bytes, len(data), _SCOPES[self.scope], name)
        self.size_bytes += len(data)
        self._content.update(data)
        self.living.add(handle)
        return handle

    def finish(self) -> None:
        """Close the file and make it durable."""
        self._target.finish()
        self.finished = True

    def drop(self) -> None:
        self._target.drop()

    def facts(self) -> PhysicalFile:
        return PhysicalFile(self.path, self.size_bytes, self._content.crc32c, self._content.xxh3)


class _MergedStream:
    """The data of one stream in memory, which becomes a segment. If it grows beyond ``limit_bytes``, it gets a file of
    its own."""

    def __init__(
        self,
        limit_bytes: int,
        append: Callable[[bytearray], SegmentFileStateHandle],
        own_file: Callable[[], SpilledFile],
    ) -> None:
        self._limit_bytes = limit_bytes
        self._append = append
        self._own_file = own_file
        self._buffer = bytearray()
        self._file: SpilledFile | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._file is None and len(self._buffer) + len(data) <= self._limit_bytes:
            self._buffer += data
            return
        if self._file is None:
            self._file = self._own_file()
            self._file.write(self._buffer)
            self._buffer = bytearray()
        self._file.write(data)

    def finish(self) -> StreamStateHandle:
        return self._append(self._buffer) if self._file is None else self._file.finish()

    def interrupt(self) -> None:
        if isinstance(self._file, InterruptibleFile):
            self._file.interrupt()

    def drop(self) -> None:
        self._buffer = bytearray()
        if self._file is not None:
            self._file.drop()


def _own_file(streams: MergeableStreams, name: str, scope: CheckpointedStateScope) -> Callable[[], SpilledFile]:
    return lambda: streams.new_file(name, scope, absolute=False)


def dense(earlier: Collection[WrittenStream], max_space_amplification: float) -> frozenset[StreamStateHandle]:
    """Return the handles of whole files, and of the segments whose physical file is dense: the size of the file is at
    most ``max_space_amplification`` times the bytes of its segments in ``earlier``.

    A segment without ``physical`` is left out."""
    living: dict[str, int] = defaultdict(int)
    for written in earlier:
        if written.physical is not None:
            living[written.physical.path] += written.size_bytes
    return frozenset(
        written.handle
        for written in earlier
        if not isinstance(written.handle, SegmentFileStateHandle)
        or (
            written.physical is not None
            and written.physical.size_bytes <= max_space_amplification * living[written.physical.path]
        )
    )


def whole_files(earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
    """Return the handles of all streams that are not segments. A storage that does not merge may reuse these."""
    return frozenset(w.handle for w in earlier if not isinstance(w.handle, SegmentFileStateHandle))


def _check_settings(settings: FileMergingSettings) -> None:
    """Raise InvalidRequestError (``bad-file-merging``) unless both limits are at least 1."""
    if settings.max_file_size_bytes < 1 or not settings.max_space_amplification >= 1:
        raise InvalidRequestError(
            f"file merging of at most {settings.max_file_size_bytes} bytes a file and amplification "
            f"{settings.max_space_amplification}: expected at least 1 of each",
            kind="bad-file-merging",
        )


class MergeableCheckpointStreams(MergeableStreams, CheckpointStreamFactory, Protocol):
    """The storage's own stream factory of one subtask's attempt."""

    @property
    def is_of_pipeline(self) -> bool:
        """Whether the streams belong to one of the pipeline's own checkpoints, not to a savepoint."""
        ...


class MergeableStorage(CheckpointStorageWorkerView, Protocol):
    """The worker view of a storage with files, which can be merged."""

    def resolve_checkpoint_storage_location(
        self, checkpoint_id: CheckpointId, reference: StorageReference, attempt: AttemptId, subtask: int
    ) -> MergeableCheckpointStreams: ...


@dataclass(frozen=True)
class FileMergingStorage:
    """The worker view of a storage that merges the small files of checkpoints. The files of savepoints are not merged
    (R94)."""

    storage: MergeableStorage
    settings: FileMergingSettings

    def resolve_checkpoint_storage_location(
        self, checkpoint_id: CheckpointId, reference: StorageReference, attempt: AttemptId, subtask: int
    ) -> CheckpointStreamFactory:
        streams = self.storage.resolve_checkpoint_storage_location(checkpoint_id, reference, attempt, subtask)
        return MergingStreamFactory(streams, self.settings) if streams.is_of_pipeline else streams

    def to_file_merging_storage(self, settings: FileMergingSettings) -> CheckpointStorageWorkerView:
        return self.storage.to_file_merging_storage(settings)

    def default_location(self, checkpoint_id: CheckpointId) -> StorageReference:
        return self.storage.default_location(checkpoint_id)

    def create_task_owned_state_stream(self, attempt: AttemptId, subtask: int) -> CheckpointOutputStream:
        return self.storage.create_task_owned_state_stream(attempt, subtask)

    def create_task_owned_checkpoint_state_toolset(self, attempt: AttemptId, subtask: int) -> CheckpointStateToolset:
        return self.storage.create_task_owned_checkpoint_state_toolset(attempt, subtask)
