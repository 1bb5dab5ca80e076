"""Retention: which checkpoints a pipeline lets go of; decided from its records alone, no clock is read."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId
from statelib.model.record import CheckpointRecord, CheckpointState, Owner
from statelib.model.termination import DISCARDED, CheckpointRetentionPolicy, JobStatus

DAY_MS = 86_400_000
DEFAULT_COUNT = 20


@dataclass(frozen=True)
class RetentionPolicy:
    """What to keep of the head's history: the newest ``count`` checkpoints, and all that completed
    within ``days`` before the newest but one. A checkpoint goes when both let it go.
    ``after_termination``: whether all of them go when the pipeline has ended; None = they stay."""

    count: int = DEFAULT_COUNT
    days: int | None = None
    after_termination: CheckpointRetentionPolicy | None = None

    def __post_init__(self) -> None:
        if self.count < 1 or (self.days is not None and self.days < 1):
            raise InvalidRequestError(
                f"retention with count {self.count} and days {self.days}: expected 1 or more",
                kind="bad-retention",
            )

    def discards_all(self, status: JobStatus) -> bool:
        """Whether a pipeline that ended so leaves no checkpoint, its state included."""
        return self.after_termination is not None and status in DISCARDED[self.after_termination]


def subsumed(
    policy: RetentionPolicy,
    records: Sequence[CheckpointRecord],
    head: CheckpointId | None,
    in_use: Collection[CheckpointId] = (),
    status: JobStatus = JobStatus.RUNNING,
) -> tuple[CheckpointId, ...]:
    """The checkpoints to let go of, oldest first, given all records of one pipeline.

    Never the head, one that is ``in_use`` (pinned, or base of a pending one), a user's, or the
    last one there is. Savepoints do not count; one that the system claimed goes once it is older
    than everything that is kept of the history. Of branches that a restore abandoned, the newest
    ``count`` stay as long as they are younger than the oldest checkpoint kept of the history, so
    that a restore can be undone for a while and repeated restores do not fill the storage. The same holds of those
    in quarantine, which do not count either.
    A pipeline that ended with a ``status`` at which the policy keeps nothing loses all that is the
    system's and not in use, its head too; what is a user's stays.
    """
    ours = [r for r in records if r.state is CheckpointState.COMPLETED and r.owner is Owner.SYSTEM]
    aside = [r for r in records if r.state is CheckpointState.QUARANTINED and r.owner is Owner.SYSTEM]
    if policy.discards_all(status):
        return tuple(sorted(r.checkpoint_id for r in (*ours, *aside) if r.checkpoint_id not in in_use))
    counted = sorted((r for r in ours if r.kind is SnapshotKind.CHECKPOINT), key=_id, reverse=True)
    history = lineage(records, head)
    kept = _kept(policy, [r for r in counted if r.checkpoint_id in history])
    oldest = min(kept, default=CheckpointId(0))
    abandoned = [r.checkpoint_id for r in counted if r.checkpoint_id not in history and r.checkpoint_id > oldest]
    kept |= set(abandoned[: policy.count])
    kept |= {r.checkpoint_id for r in ours if r.kind is SnapshotKind.SAVEPOINT and r.checkpoint_id > oldest}
    kept |= {*in_use} if head is None else {*in_use, head}
    if counted and not any(r.checkpoint_id in kept for r in records if r.state is CheckpointState.COMPLETED):
        kept.add(counted[0].checkpoint_id)
    inspected = sorted((r.checkpoint_id for r in aside if r.checkpoint_id > oldest), reverse=True)[: policy.count]
    return tuple(sorted(r.checkpoint_id for r in (*ours, *aside) if r.checkpoint_id not in {*kept, *inspected}))


def lineage(records: Sequence[CheckpointRecord], head: CheckpointId | None) -> frozenset[CheckpointId]:
    """``head``, its base, the base's base and so on, deleted ones included."""
    bases = {r.checkpoint_id: r.base for r in records}
    found: set[CheckpointId] = set()
    while head is not None and head not in found:
        found.add(head)
        head = bases.get(head)
    return frozenset(found)


def _kept(policy: RetentionPolicy, newest_first: Sequence[CheckpointRecord]) -> set[CheckpointId]:
    kept = {r.checkpoint_id for r in newest_first[: policy.count]}
    if policy.days is not None:
        # Not counted back from now: a pipeline that stood still keeps its history. Nor from the latest of them: a
        # clock that was ahead during one run removes nothing.
        latest_ms = sorted((r.completed_at_ms or 0 for r in newest_first), reverse=True)[:2]
        since_ms = min(latest_ms, default=0) - policy.days * DAY_MS
        kept |= {r.checkpoint_id for r in newest_first if (r.completed_at_ms or 0) >= since_ms}
    return kept


def _id(record: CheckpointRecord) -> CheckpointId:
    return record.checkpoint_id
