"""The snapshot of a subtask: its keyed state and its operator state. After an error neither of them is left."""

from typing import Any

from statelib.model.ids import CheckpointId
from statelib.snapshots.strategies.operator import OperatorStateCopy, OperatorStateSnapshotStrategy
from statelib.snapshots.strategy import SnapshotResources, SnapshotResult, SnapshotStrategy
from statelib.snapshots.uploads.streams import discard_all
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointStreamFactory


class SubtaskResources:
    """The frozen operator state and the frozen keyed state."""

    def __init__(self, operator: OperatorStateCopy, keyed: SnapshotResources) -> None:
        self.operator, self.keyed = operator, keyed

    def release(self) -> None:
        """Release both."""
        try:
            self.operator.release()
        finally:
            self.keyed.release()


class SubtaskSnapshotStrategy:
    """The :class:`~statelib.snapshots.strategy.SnapshotStrategy` that writes keyed and operator state.

    It combines a strategy for each. Both states are frozen at the same moment."""

    def __init__(self, keyed: SnapshotStrategy[Any], operator: OperatorStateSnapshotStrategy) -> None:
        self._keyed, self._operator = keyed, operator

    @property
    def description(self) -> str:
        return f"{self._keyed.description}, {self._operator.description}"

    def prepare(self, checkpoint_id: CheckpointId) -> SubtaskResources:
        operator = self._operator.prepare(checkpoint_id)
        try:
            return SubtaskResources(operator, self._keyed.prepare(checkpoint_id))
        except BaseException:
            operator.release()
            raise

    def run(
        self,
        resources: SubtaskResources,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        """Write the operator state, then the keyed state, and return both handles in one result.

        The operator state is first because it is small: it is discarded if the keyed state cannot be written."""
        operator = self._operator.run(resources.operator, checkpoint_id, streams, registry)
        try:
            keyed = self._keyed.run(resources.keyed, checkpoint_id, streams, registry)
        except BaseException as error:
            discard_all(streams, operator.streams, error)
            raise
        return SnapshotResult(keyed.keyed, (*keyed.streams, *operator.streams), keyed.reused, operator.operator)

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        self._keyed.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        self._keyed.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        try:
            self._operator.close()
        finally:
            self._keyed.close()
