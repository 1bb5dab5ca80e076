"""Retention: which checkpoints a pipeline lets go of; decided from its records alone, no clock is read."""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from statelib.coordinator.checkpoint_lifecycle import is_committed
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId
from statelib.model.record import CheckpointRecord, CheckpointState, Owner
from statelib.model.termination import DISCARDED, CheckpointRetentionPolicy, JobStatus

DAY_MS = 86_400_000
DEFAULT_COUNT = 20
_STORED = (CheckpointState.COMPLETED, CheckpointState.QUARANTINED)


@dataclass(frozen=True)
class RetentionPolicy:
    """What to keep of a pipeline's history: the newest ``count`` checkpoints, and all that completed
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
    """The checkpoints to let go of, oldest first, given all records of one pipeline: those that :func:`retained` has
    no reason to keep."""
    kept = retained(policy, records, head, in_use, status)
    return tuple(sorted(r.checkpoint_id for r in records if r.state in _STORED and r.checkpoint_id not in kept))


def retained(
    policy: RetentionPolicy,
    records: Sequence[CheckpointRecord],
    head: CheckpointId | None,
    in_use: Collection[CheckpointId] = (),
    status: JobStatus = JobStatus.RUNNING,
) -> dict[CheckpointId, str]:
    """Return what stays of all records of one pipeline, each with the reason.

    Always the head, one that is ``in_use`` (pinned, or base of a pending one), a user's, and the newest ``count``
    completed checkpoints of the pipeline, hence the last one there is. Savepoints do not count; one that the system
    claimed goes once it is older than everything that is kept of the :func:`history`. Of branches that a restore
    abandoned, the newest ``count`` stay as long as they are younger than the oldest checkpoint kept of the history, or
    the history has fewer than ``count``, so that a restore can be undone for a while and repeated restores do not fill
    the storage. The same holds of those in quarantine, which do not count either.
    A pipeline that ended with a ``status`` at which the policy keeps nothing loses all that is the
    system's and not in use, its head too; what is a user's stays.
    """
    stored = sorted((r for r in records if r.state in _STORED), key=_id, reverse=True)
    kept = {r.checkpoint_id: _users(r) for r in stored if r.owner is not Owner.SYSTEM}
    _keep(kept, in_use, "in use: a restore reads it, or a pending checkpoint builds on it")
    if policy.discards_all(status):
        return _only(stored, kept)
    _keep(kept, () if head is None else (head,), "the head")
    completed = [r for r in stored if r.state is CheckpointState.COMPLETED and r.owner is Owner.SYSTEM]
    counted = [r for r in completed if r.kind is SnapshotKind.CHECKPOINT]
    line = history(records, head)
    of_history = [r for r in counted if r.checkpoint_id in line]
    newest, recent = _ids(of_history[: policy.count]), _recent(policy, of_history)
    _keep(kept, newest, f"one of the newest {policy.count} of the history")
    _keep(kept, recent, f"completed within {policy.days} days before the newest but one")
    oldest = min((*newest, *recent)) if len(newest) == policy.count else CheckpointId(0)
    branches = [r for r in counted if r.checkpoint_id not in line and r.checkpoint_id > oldest]
    _keep(kept, _ids(branches[: policy.count]), "left behind by a restore, which can still be undone")
    savepoints = [r for r in completed if r.kind is SnapshotKind.SAVEPOINT and r.checkpoint_id > oldest]
    _keep(kept, _ids(savepoints), "a claimed savepoint that is not older than all that is kept")
    aside = [r for r in stored if r.state is CheckpointState.QUARANTINED and r.checkpoint_id > oldest]
    _keep(kept, _ids(aside[: policy.count]), f"one of the newest {policy.count} in quarantine")
    return _only(stored, kept)


def _users(record: CheckpointRecord) -> str:
    what = "a savepoint" if record.kind is SnapshotKind.SAVEPOINT else "a checkpoint"
    return f"{what}, which is its user's"


def history(records: Sequence[CheckpointRecord], head: CheckpointId | None) -> frozenset[CheckpointId]:
    """Return the :func:`lineage` of ``head`` and, where that ends although the pipeline has older checkpoints, the
    lineage of the newest of them, and so on: a base that was imported, or given up, does not end a history."""
    committed = sorted(
        r.checkpoint_id
        for r in records
        if r.kind is SnapshotKind.CHECKPOINT and r.owner is Owner.SYSTEM and is_committed(r)
    )
    bases, found = {r.checkpoint_id: r.base for r in records}, set[CheckpointId]()
    while head is not None:
        found.add(head)
        base = bases.get(head)
        if base is None or base >= head:
            older = bisect_left(committed, head)
            base = committed[older - 1] if older else None
        head = base
    return frozenset(found)


def lineage(records: Sequence[CheckpointRecord], head: CheckpointId | None) -> frozenset[CheckpointId]:
    """``head``, its base, the base's base and so on, deleted ones included."""
    bases = {r.checkpoint_id: r.base for r in records}
    found: set[CheckpointId] = set()
    while head is not None and head not in found:
        found.add(head)
        head = bases.get(head)
    return frozenset(found)


def _recent(policy: RetentionPolicy, counted: Sequence[CheckpointRecord]) -> list[CheckpointId]:
    """The checkpoints that ``days`` keeps."""
    if policy.days is None:
        return []
    # Not counted back from now: a pipeline that stood still keeps its history. Nor from the latest of them: a
    # clock that was ahead during one run removes nothing.
    latest_ms = sorted((r.completed_at_ms or 0 for r in counted), reverse=True)[:2]
    since_ms = min(latest_ms, default=0) - policy.days * DAY_MS
    return [r.checkpoint_id for r in counted if (r.completed_at_ms or 0) >= since_ms]


def _keep(kept: dict[CheckpointId, str], ids: Collection[CheckpointId], reason: str) -> None:
    """Add the reason for those of ``ids`` that have none yet."""
    for checkpoint_id in ids:
        kept.setdefault(checkpoint_id, reason)


def _only(stored: Sequence[CheckpointRecord], kept: Mapping[CheckpointId, str]) -> dict[CheckpointId, str]:
    return {r.checkpoint_id: kept[r.checkpoint_id] for r in stored if r.checkpoint_id in kept}


def _ids(records: Sequence[CheckpointRecord]) -> list[CheckpointId]:
    return [r.checkpoint_id for r in records]


def _id(record: CheckpointRecord) -> CheckpointId:
    return record.checkpoint_id
