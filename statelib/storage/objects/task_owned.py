"""Task-owned state in a bucket: its streams and its toolset."""

from collections.abc import Sequence

from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, StreamStateHandle
from statelib.model.ids import AttemptId
from statelib.storage.names import task_owned_name
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.copies import copy_object, in_bucket_of
from statelib.storage.objects.spool import SpooledObject
from statelib.storage.objects.uris import ObjectLocation
from statelib.storage.streams import CheckpointStream
from statelib.storage.task_owned import duplicable, own_name


class ObjectTaskOwned:
    """The task-owned streams of one subtask's attempt in a bucket, and a
    :class:`~statelib.storage.ports.views.CheckpointStateToolset` for them. The storage itself copies duplicates."""

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
        self._attempt_and_subtask = (attempt, subtask)

    def create_stream(self) -> CheckpointStream:
        """Return a new stream whose object has a new name in the directory of task-owned state."""
        name = task_owned_name(*self._attempt_and_subtask)
        location = self._directory.below(name)
        return CheckpointStream(
            name,
            self._inline_threshold_bytes,
            lambda _size: SpooledObject(
                self._objects, location, self._scratch, lambda size: FileStateHandle(location.uri, size)
            ),
        )

    def can_fast_duplicate(self, handle: StreamStateHandle) -> bool:
        """Return whether the handle stands for a whole object of the same bucket that one request can copy, so that the
        copy is complete when the request is answered."""
        return in_bucket_of(handle, self._directory) is not None

    def duplicate(self, handles: Sequence[StreamStateHandle]) -> tuple[StreamStateHandle, ...]:
        sources = [duplicable(handle, self.can_fast_duplicate(handle)) for handle in handles]
        targets = [self._directory.below(task_owned_name(*self._attempt_and_subtask)) for _ in sources]
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
            self._objects.delete(self._directory.below(own_name(handle, self._directory.uri)).key)
