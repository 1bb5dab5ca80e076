"""The contract of all snapshot strategies.

``prepare`` is synchronous and short: it freezes the state of one moment. ``run`` does all I/O. It may run on any
thread, closing the registry cancels it, and after an error it has removed everything it wrote.

Source: docs/spec/requirements.md R1 to R19.
"""

import logging
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from statelib.model.checkpoint import SideDataRecord
from statelib.model.handles import KeyedStateHandle, OperatorStreamStateHandle
from statelib.model.ids import CheckpointId
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointStreamFactory, WrittenStream

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SnapshotResult:
    """The result of one snapshot.

    If both ``keyed`` and ``operator`` are None, no state is registered and nothing was written.

    Attributes:
        keyed: The handle of the keyed state.
        streams: All streams that were written for the snapshot, including inline ones.
        reused: The streams of earlier snapshots that it refers to. Who discards the snapshot must not discard them.
        operator: The handle of the operator state.
        side_data: The records of the side data.
    """

    keyed: KeyedStateHandle | None
    streams: tuple[WrittenStream, ...]
    reused: tuple[WrittenStream, ...] = ()
    operator: OperatorStreamStateHandle | None = None
    side_data: tuple[SideDataRecord, ...] = ()


EMPTY = SnapshotResult(None, ())
"""The result if no state is registered."""


def empty_snapshot(description: str) -> SnapshotResult:
    """Return :data:`EMPTY`, and log that the strategy with this ``description`` wrote nothing.

    Source: docs/spec/requirements.md R8."""
    log.info("%s: no state is registered, nothing is written", description)
    return EMPTY


class SnapshotResources(Protocol):
    """The frozen state of one moment, which ``prepare`` returns and ``run`` reads."""

    def release(self) -> None:
        """Free the frozen state. It is called exactly once, after success, an error or a cancel."""
        ...


R = TypeVar("R", bound=SnapshotResources)


class CheckpointListener:
    """The notifications that a strategy receives between snapshots. They do nothing unless overridden.

    They matter to a strategy that takes several snapshots. A run of a pipeline takes only one snapshot per strategy,
    and sends no notifications. Source: docs/spec/requirements.md R18; CheckpointListener of Flink."""

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """Handle that the checkpoint is committed: later snapshots may refer to its files."""

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        """Handle that the checkpoint will never be committed: no snapshot may refer to its files."""


class SnapshotStrategy(Protocol, Generic[R]):
    """The way in which the state of one backend becomes a snapshot. All checkpoints of the backend use one instance.

    - ``description``: the name of the strategy in log lines.
    - ``prepare``: freeze the state and return it.
    - ``run``: write the frozen state and return the result. It does not release ``resources``.
    - The notifications are those of :class:`CheckpointListener`. They never raise an error.
    - ``close``: end the threads of the strategy.
    """

    @property
    def description(self) -> str: ...
    def prepare(self, checkpoint_id: CheckpointId) -> R: ...
    def run(
        self, resources: R, checkpoint_id: CheckpointId, streams: CheckpointStreamFactory, registry: CloseableRegistry
    ) -> SnapshotResult: ...
    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None: ...
    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None: ...
    def close(self) -> None: ...


def take_snapshot(
    strategy: SnapshotStrategy[R],
    checkpoint_id: CheckpointId,
    streams: CheckpointStreamFactory,
    registry: CloseableRegistry,
) -> SnapshotResult:
    """Take a snapshot on this thread and return its result.

    The frozen state is released even after an error. Raises the errors of the strategy."""
    resources = strategy.prepare(checkpoint_id)
    try:
        return strategy.run(resources, checkpoint_id, streams, registry)
    finally:
        resources.release()
