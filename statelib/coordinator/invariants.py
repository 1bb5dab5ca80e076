"""The invariants of checkpoints and of a pipeline's history, as pure functions.

The coverage of key groups is checked before every commit. The transactions of the catalog preserve the invariants of
a history, because each names the state and the epoch that it expects. ``statelib catalog check`` checks the history,
and so do the tests after every step.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from statelib.coordinator.checkpoint_lifecycle import COMMITTED, is_committed
from statelib.coordinator.rebuilding import GIVEN_UP
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import CheckpointRecord, CheckpointState, PipelineHead


def key_group_coverage(ranges: Iterable[KeyGroupRange], max_parallelism: int) -> list[int]:
    """Return, per key group from 0 to max_parallelism - 1, the number of ``ranges`` that contain it.

    Key groups from max_parallelism on are not counted."""
    # Sum up +1 at the start and -1 after the end of each range: time is linear in ranges plus key groups.
    edges = np.zeros(max_parallelism + 1, np.int64)
    for key_groups in ranges:
        if len(key_groups) and key_groups.start < max_parallelism:
            edges[key_groups.start] += 1
            edges[min(key_groups.end + 1, max_parallelism)] -= 1
    return [int(count) for count in np.cumsum(edges[:-1])]


def covers_exactly_once(ranges: Sequence[KeyGroupRange], max_parallelism: int) -> bool:
    """Return whether each key group from 0 to max_parallelism - 1 lies in exactly one range.

    It is False if a range contains other key groups."""
    are_inside = all(len(key_groups) == 0 or key_groups.end < max_parallelism for key_groups in ranges)
    return are_inside and all(count == 1 for count in key_group_coverage(ranges, max_parallelism))


def history_violations(head: PipelineHead, records: Sequence[CheckpointRecord]) -> list[str]:
    """Return the violations of the invariants in one pipeline's history, in words; an empty list if there are none.

    The invariants are:

    - The ids of checkpoints are distinct.
    - At most one checkpoint is PENDING, and it has the newest epoch. Savepoints do not count.
    - The head is committed. Each base is committed and older than the checkpoint that was built on it, so neither is
      ever in quarantine. A base may have no row: a rebuilt catalog has no rows of checkpoints deleted before. Or it
      was given up by a rebuild.
    - No epoch and no generation of a checkpoint is greater than the pipeline's. Those of a savepoint may be: a rebuild
      does not derive the pipeline's from savepoints, which belong to their users.
    - A checkpoint that is QUARANTINED has an attempt and a reason, and no time of completion. A committed one has an
      attempt and a time of completion.

    Args:
        head: The head of the pipeline.
        records: All checkpoints and savepoints of the pipeline, deleted ones included.
    """
    by_id = {r.checkpoint_id: r for r in records}
    violations = [] if len(by_id) == len(records) else ["an id was used twice"]
    pending = [r for r in records if r.state is CheckpointState.PENDING and r.kind is SnapshotKind.CHECKPOINT]
    if len(pending) > 1:
        violations.append(f"checkpoints {[r.checkpoint_id for r in pending]} are PENDING at the same time")
    violations += [f"PENDING {r.checkpoint_id} has a superseded epoch" for r in pending if r.epoch != head.epoch]
    if head.head is not None and not _committed(by_id, head.head):
        violations.append(f"head {head.head} is not committed")
    for record in records:
        violations += _record_violations(head, record, by_id)
    return violations


def _record_violations(
    head: PipelineHead, record: CheckpointRecord, by_id: Mapping[CheckpointId, CheckpointRecord]
) -> list[str]:
    """Return the violations of one record, in words."""
    name, violations = record.checkpoint_id, []
    is_checkpoint = record.kind is SnapshotKind.CHECKPOINT
    if is_checkpoint and (record.epoch > head.epoch or record.generation > head.generation):
        violations.append(f"{name} is ahead of its pipeline's epoch or generation")
    base = record.base
    if base is not None and not (base < name and (base not in by_id or _may_be_base(by_id[base]))):
        violations.append(f"{name} continues from {base}, which is not an older committed checkpoint")
    violations += _state_violations(record)
    return violations


def _state_violations(record: CheckpointRecord) -> list[str]:
    """Return the violation of a record whose other fields contradict its state, in words."""
    name, in_quarantine = record.checkpoint_id, record.state is CheckpointState.QUARANTINED
    if in_quarantine and (record.attempt is None or record.failure is None or record.completed_at_ms is not None):
        return [f"{name} is QUARANTINED without an attempt and a reason, or has a time of completion"]
    # A checkpoint that was deleted out of quarantine has a reason instead of a time of completion.
    has_time_or_reason = record.completed_at_ms is not None or (
        record.state is not CheckpointState.COMPLETED and record.failure is not None
    )
    if record.state in COMMITTED and (record.attempt is None or not has_time_or_reason):
        return [f"{name} is {record.state} without an attempt and a time"]
    return []


def _may_be_base(record: CheckpointRecord) -> bool:
    given_up = record.state is CheckpointState.ABORTED and record.reason.startswith(GIVEN_UP)
    return is_committed(record) or given_up


def _committed(by_id: Mapping[CheckpointId, CheckpointRecord], checkpoint_id: CheckpointId) -> bool:
    """Return whether the checkpoint has a record and is committed."""
    record = by_id.get(checkpoint_id)
    return record is not None and is_committed(record)
