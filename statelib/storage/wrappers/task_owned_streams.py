"""The task-owned streams of one subtask's attempt behind the port of a snapshot's streams."""

from collections.abc import Collection, Mapping

from statelib.model.handles import StreamStateHandle
from statelib.model.ids import AttemptId
from statelib.storage.ports.views import (
    CheckpointedStateScope,
    CheckpointOutputStream,
    CheckpointStorageWorkerView,
    CheckpointStreamFactory,
    PhysicalFile,
    WrittenStream,
)


class TaskOwnedStreams(CheckpointStreamFactory):
    """The :class:`~statelib.storage.ports.views.CheckpointStreamFactory` whose streams are task-owned, whatever their
    scope.

    They are never merged, so that each can be referred to and removed by itself."""

    def __init__(self, storage: CheckpointStorageWorkerView, attempt: AttemptId, subtask: int) -> None:
        self._storage = storage
        self._attempt, self._subtask = attempt, subtask
        self._tools = storage.create_task_owned_checkpoint_state_toolset(attempt, subtask)

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointOutputStream:  # noqa: ARG002 - the port's
        return self._storage.create_task_owned_state_stream(self._attempt, self._subtask)

    def discard(self, handle: StreamStateHandle) -> None:
        self._tools.discard(handle)

    def flush(self) -> Mapping[str, PhysicalFile]:
        return {}

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        return frozenset(stream.handle for stream in earlier)

    def duplicate(
        self,
        original: StreamStateHandle,
        scope: CheckpointedStateScope,  # noqa: ARG002 - the port's signature
    ) -> StreamStateHandle | None:
        if not self._tools.can_fast_duplicate(original):
            return None
        (copy,) = self._tools.duplicate([original])
        return copy
