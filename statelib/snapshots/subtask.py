"""The whole snapshot of a subtask: its keyed and its operator state, both or nothing."""

from typing import Any

from statelib.errors import StatelibError
from statelib.model.ids import CheckpointId
from statelib.snapshots.operator import OperatorStateCopy, OperatorStateSnapshotStrategy
from statelib.snapshots.strategy import SnapshotResources, SnapshotResult, SnapshotStrategy
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.views import CheckpointStreamFactory


class SubtaskResources:
    """Both frozen views."""

    def __init__(self, operator: OperatorStateCopy, keyed: SnapshotResources) -> None:
        self.operator, self.keyed = operator, keyed

    def release(self) -> None:
        self.operator.release()
        self.keyed.release()


class SubtaskSnapshotStrategy:
    """A :class:`~statelib.snapshots.strategy.SnapshotStrategy` made of two; both views are of one moment."""

    def __init__(self, keyed: SnapshotStrategy[Any], operator: OperatorStateSnapshotStrategy) -> None:
        self._keyed, self._operator = keyed, operator

    @property
    def description(self) -> str:
        return f"{self._keyed.description}, {self._operator.description}"

    def prepare(self, checkpoint_id: CheckpointId) -> SubtaskResources:
        operator = self._operator.prepare(checkpoint_id)
        return SubtaskResources(operator, self._keyed.prepare(checkpoint_id))

    def run(
        self,
        resources: SubtaskResources,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        """Operator state goes first because it is small: it is discarded again when the keyed state fails."""
        operator = self._operator.run(resources.operator, checkpoint_id, streams, registry)
        try:
            keyed = self._keyed.run(resources.keyed, checkpoint_id, streams, registry)
        except BaseException as error:
            for written in operator.streams:
                try:
                    streams.discard(written.handle)
                except StatelibError as second:
                    error.add_note(f"also while discarding operator state: {second}")
            raise
        return SnapshotResult(keyed.keyed, (*keyed.streams, *operator.streams), keyed.reused, operator.operator)

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        self._keyed.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        self._keyed.notify_checkpoint_aborted(checkpoint_id)

    def notify_checkpoint_subsumed(self, checkpoint_id: CheckpointId) -> None:
        self._keyed.notify_checkpoint_subsumed(checkpoint_id)

    def close(self) -> None:
        self._operator.close()
        self._keyed.close()
