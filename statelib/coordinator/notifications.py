"""What a run has to be told of the checkpoints before it: the processes that took them are gone.

Nothing has to be undone after an abort: the base of the next checkpoint is the head, which an aborted one
never was. But whatever keeps copies of snapshots on a worker's disk must learn which of them are of no use.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from statelib.model.ids import CheckpointId
from statelib.model.record import CheckpointRecord, CheckpointState


class Listener(Protocol):
    """A :class:`~statelib.snapshots.strategy.SnapshotStrategy`, as far as it listens."""

    def notify_checkpoint_complete(self, checkpoint_id: CheckpointId) -> None: ...
    def notify_checkpoint_aborted(self, checkpoint_id: CheckpointId) -> None: ...
    def notify_checkpoint_subsumed(self, checkpoint_id: CheckpointId) -> None: ...


@dataclass(frozen=True)
class History:
    """Of one moment. ``completed``: the base, which stands for all before it; ``aborted``: those begun after it, and
    those that were set aside, which are nobody's base either;
    ``subsumed``: those that retention let go of and gc has not removed yet. Picklable."""

    completed: CheckpointId | None = None
    aborted: tuple[CheckpointId, ...] = ()
    subsumed: tuple[CheckpointId, ...] = ()

    def tell(self, listener: Listener) -> None:
        """In the order in which things happened, the present state last."""
        for checkpoint_id in self.subsumed:
            listener.notify_checkpoint_subsumed(checkpoint_id)
        for checkpoint_id in self.aborted:
            listener.notify_checkpoint_aborted(checkpoint_id)
        if self.completed is not None:
            listener.notify_checkpoint_complete(self.completed)


NOTHING_HAPPENED = History()
TOLD = (CheckpointState.ABORTED, CheckpointState.QUARANTINED, CheckpointState.DELETING)
"""States of the records that :func:`history_before` looks at."""
_IN_VAIN = (CheckpointState.ABORTED, CheckpointState.QUARANTINED)


def history_before(records: Iterable[CheckpointRecord], base: CheckpointId | None) -> History:
    """What a run that builds on ``base`` is told, from the records of its pipeline."""
    since = 0 if base is None else base
    ordered = sorted(records, key=lambda r: r.checkpoint_id)
    return History(
        base,
        tuple(r.checkpoint_id for r in ordered if r.state in _IN_VAIN and r.checkpoint_id > since),
        tuple(r.checkpoint_id for r in ordered if r.state is CheckpointState.DELETING),
    )
