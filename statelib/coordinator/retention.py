"""Retention: which checkpoints of a pipeline to keep and which to delete.

The pipeline's records alone decide it; no clock is read.
"""

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
"""The number of checkpoints to keep if a pipeline declares none."""
NONE_WAITING: Mapping[CheckpointId, str] = {}
_STORED = (CheckpointState.COMPLETED, CheckpointState.QUARANTINED)


@dataclass(frozen=True)
class RetentionPolicy:
    """The checkpoints to keep of a pipeline's history. One that neither ``count`` nor ``days`` keeps is deleted.

    Attributes:
        count: Keep the newest ``count`` checkpoints.
        days: Keep all checkpoints that completed within ``days`` before the last checkpoint but one; None to keep none
            for their age.
        after_termination: Whether to delete all checkpoints after the pipeline has ended; None to keep them.

    Raises:
        InvalidRequestError: ``bad-retention`` if ``count`` or ``days`` is less than 1.
    """

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
        """Return whether to delete all checkpoints of a pipeline with this ``status``, so that its state is lost."""
        return self.after_termination is not None and status in DISCARDED[self.after_termination]


def subsumed(
    policy: RetentionPolicy,
    records: Sequence[CheckpointRecord],
    head: CheckpointId | None,
    in_use: Collection[CheckpointId] = (),
    status: JobStatus = JobStatus.RUNNING,
    *,
    waiting: Mapping[CheckpointId, str] = NONE_WAITING,
) -> tuple[CheckpointId, ...]:
    """Return the checkpoints to delete, oldest first: those that :func:`retained` gives no reason to keep.

    The arguments are those of :func:`retained`."""
    retained_ids = retained(policy, records, head, in_use, status, waiting=waiting)
    return tuple(sorted(r.checkpoint_id for r in records if r.state in _STORED and r.checkpoint_id not in retained_ids))


def retained(
    policy: RetentionPolicy,
    records: Sequence[CheckpointRecord],
    head: CheckpointId | None,
    in_use: Collection[CheckpointId] = (),
    status: JobStatus = JobStatus.RUNNING,
    *,
    waiting: Mapping[CheckpointId, str] = NONE_WAITING,
) -> dict[CheckpointId, str]:
    """Return the id of each checkpoint to keep, with the reason in words.

    Kept are:

    - the head;
    - each checkpoint that is ``in_use``: pinned, or the base of a pending checkpoint;
    - each checkpoint that is ``waiting``, with the reason in words: for its outputs to be published;
    - each checkpoint and savepoint that belongs to a user;
    - the newest ``count`` completed checkpoints of the :func:`history`, and those that ``days`` keeps;
    - each savepoint that the system claimed, unless it is older than all checkpoints kept of the history;
    - the newest ``count`` checkpoints of branches that a restore abandoned, unless they are older than all checkpoints
      kept of the history. So a restore can be undone for a while, and repeated restores do not fill the storage;
    - the newest ``count`` checkpoints in quarantine, on the same condition.

    As long as the history has fewer than ``count`` checkpoints, nothing counts as older than it. ``records`` are all
    records of the pipeline. If the policy deletes all checkpoints at this ``status``, only those that are in use or
    waiting, or that belong to a user, are kept: the head is deleted too.
    """
    stored = sorted((r for r in records if r.state in _STORED), key=_id, reverse=True)
    reasons = {r.checkpoint_id: _reason_of_user(r) for r in stored if r.owner is not Owner.SYSTEM}
    _add_reason(reasons, in_use, "in use: a restore reads it, or a pending checkpoint builds on it")
    for checkpoint_id, reason in waiting.items():
        _add_reason(reasons, (checkpoint_id,), reason)
    if policy.discards_all(status):
        return _reasons_of(stored, reasons)
    _add_reason(reasons, () if head is None else (head,), "the head")
    completed = [r for r in stored if r.state is CheckpointState.COMPLETED and r.owner is Owner.SYSTEM]
    counted = [r for r in completed if r.kind is SnapshotKind.CHECKPOINT]
    history_ids = history(records, head)
    of_history = [r for r in counted if r.checkpoint_id in history_ids]
    newest_ids, recent_ids = _ids(of_history[: policy.count]), _recent(policy, of_history)
    _add_reason(reasons, newest_ids, f"one of the newest {policy.count} of the history")
    _add_reason(reasons, recent_ids, f"completed within {policy.days} days before the newest but one")
    oldest_kept = min((*newest_ids, *recent_ids)) if len(newest_ids) == policy.count else CheckpointId(0)
    branches = [r for r in counted if r.checkpoint_id not in history_ids and r.checkpoint_id > oldest_kept]
    _add_reason(reasons, _ids(branches[: policy.count]), "left behind by a restore, which can still be undone")
    savepoints = [r for r in completed if r.kind is SnapshotKind.SAVEPOINT and r.checkpoint_id > oldest_kept]
    _add_reason(reasons, _ids(savepoints), "a claimed savepoint that is not older than all that is kept")
    in_quarantine = [r for r in stored if r.state is CheckpointState.QUARANTINED and r.checkpoint_id > oldest_kept]
    _add_reason(reasons, _ids(in_quarantine[: policy.count]), f"one of the newest {policy.count} in quarantine")
    return _reasons_of(stored, reasons)


def _reason_of_user(record: CheckpointRecord) -> str:
    """Return the reason to keep a checkpoint or savepoint that belongs to a user."""
    noun = "a savepoint" if record.kind is SnapshotKind.SAVEPOINT else "a checkpoint"
    return f"{noun}, which is its user's"


def history(records: Sequence[CheckpointRecord], head: CheckpointId | None) -> frozenset[CheckpointId]:
    """Return the ids of the pipeline's history, from ``head`` back to its first checkpoint.

    The history is the :func:`lineage` of ``head``. If that ends although the pipeline has older checkpoints, the
    lineage of the newest of them follows, and so on: a checkpoint whose base was imported or is missing does not end
    the history."""
    committed = sorted(
        r.checkpoint_id
        for r in records
        if r.kind is SnapshotKind.CHECKPOINT and r.owner is Owner.SYSTEM and is_committed(r)
    )
    bases, history_ids = {r.checkpoint_id: r.base for r in records}, set[CheckpointId]()
    while head is not None:
        history_ids.add(head)
        base = bases.get(head)
        if base is None or base >= head:
            older = bisect_left(committed, head)
            base = committed[older - 1] if older else None
        head = base
    return frozenset(history_ids)


def lineage(records: Sequence[CheckpointRecord], head: CheckpointId | None) -> frozenset[CheckpointId]:
    """Return ``head``, its base, the base's base and so on, including deleted ones."""
    bases = {r.checkpoint_id: r.base for r in records}
    lineage_ids: set[CheckpointId] = set()
    while head is not None and head not in lineage_ids:
        lineage_ids.add(head)
        head = bases.get(head)
    return frozenset(lineage_ids)


def _recent(policy: RetentionPolicy, counted: Sequence[CheckpointRecord]) -> list[CheckpointId]:
    """Return the ids of the checkpoints that ``days`` keeps."""
    if policy.days is None:
        return []
    # The days are not counted back from now, so that a paused pipeline keeps its history. They are not counted back
    # from the last checkpoint either, so that a clock that was ahead during one run causes no deletion.
    last_two_ms = sorted((r.completed_at_ms or 0 for r in counted), reverse=True)[:2]
    since_ms = min(last_two_ms, default=0) - policy.days * DAY_MS
    return [r.checkpoint_id for r in counted if (r.completed_at_ms or 0) >= since_ms]


def _add_reason(reasons: dict[CheckpointId, str], ids: Collection[CheckpointId], reason: str) -> None:
    """Add ``reason`` to ``reasons`` for each of ``ids`` that has none yet."""
    for checkpoint_id in ids:
        reasons.setdefault(checkpoint_id, reason)


def _reasons_of(stored: Sequence[CheckpointRecord], reasons: Mapping[CheckpointId, str]) -> dict[CheckpointId, str]:
    """Return the ``reasons`` of the checkpoints in ``stored`` that have one, in their order."""
    return {r.checkpoint_id: reasons[r.checkpoint_id] for r in stored if r.checkpoint_id in reasons}


def _ids(records: Sequence[CheckpointRecord]) -> list[CheckpointId]:
    return [r.checkpoint_id for r in records]


def _id(record: CheckpointRecord) -> CheckpointId:
    return record.checkpoint_id
