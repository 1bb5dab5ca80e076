"""Task-owned state in a bucket."""

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
            self._objects.delete(self._directory.below(own_name(handle, self._directory.uri)).key)
