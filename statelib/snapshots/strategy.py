"""The contract that every snapshot strategy keeps (requirements R1 to R19).

``prepare`` is synchronous and short: it freezes a point-in-time view. ``run`` does all I/O, may
run on any thread, is cancelled through the registry, and leaves nothing behind when it fails.
"""

import logging
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from statelib.model.handles import KeyedStateHandle, OperatorStreamStateHandle
from statelib.model.ids import CheckpointId
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.views import CheckpointStreamFactory, WrittenStream

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SnapshotResult:
    """``keyed`` and ``operator`` None is the EMPTY result: no state registered, no stream opened, no file written.

    ``streams``: every stream that was written for it (inlined ones included). ``reused``: those of
    earlier snapshots that it refers to; they are not its own to discard."""

    keyed: KeyedStateHandle | None
    streams: tuple[WrittenStream, ...]
    reused: tuple[WrittenStream, ...] = ()
    operator: OperatorStreamStateHandle | None = None


EMPTY = SnapshotResult(None, ())


def empty_snapshot(description: str) -> SnapshotResult:
    """Return :data:`EMPTY`, and log that the strategy of that description wrote nothing (R8)."""
    log.info("%s: no state is registered, nothing is written", description)
    return EMPTY


class SnapshotResources(Protocol):
    def release(self) -> None:
        """Free the frozen view; exactly once on success, failure and cancel."""
        ...


R = TypeVar("R", bound=SnapshotResources)


class CheckpointListener:
    """What a strategy that takes several snapshots is notified of. Does nothing unless overridden.

    A run makes its strategies for one snapshot, on the base that the catalog names, and has nothing to notify them of.
    Source: requirement R18; CheckpointListener of Flink."""

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint is committed: later snapshots may refer to its files."""

    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint will never be committed: no snapshot may refer to its files."""


class SnapshotStrategy(Protocol, Generic[R]):
    """One instance a backend, used for every checkpoint of it. The notifications are those of
    :class:`CheckpointListener`, which a strategy inherits; they never fail."""

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
    """Both parts, one after the other, on this thread; the resources are released whatever happens."""
    resources = strategy.prepare(checkpoint_id)
    try:
        return strategy.run(resources, checkpoint_id, streams, registry)
    finally:
        resources.release()
