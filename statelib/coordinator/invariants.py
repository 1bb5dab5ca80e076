"""What must always hold, as pure predicates.

The coverage of key groups is checked before every commit. A pipeline's history is kept by the transactions, which name
the state and the epoch that they expect; ``statelib catalog check`` looks at it, and so do the tests after every step.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from statelib.coordinator.checkpoint_lifecycle import COMMITTED, is_committed
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import CheckpointRecord, CheckpointState, PipelineHead


def key_group_coverage(ranges: Iterable[KeyGroupRange], max_parallelism: int) -> list[int]:
    """How many of ``ranges`` hold each key group 0..max_parallelism-1; parts outside are not counted."""
    # Changes at the edges, summed up: linear in ranges and key groups, not in their product.
    edges = np.zeros(max_parallelism + 1, np.int64)
    for held in ranges:
        if len(held) and held.start < max_parallelism:
            edges[held.start] += 1
            edges[min(held.end + 1, max_parallelism)] -= 1
    return [int(count) for count in np.cumsum(edges[:-1])]


def covers_exactly_once(ranges: Sequence[KeyGroupRange], max_parallelism: int) -> bool:
    """Whether every key group 0..max_parallelism-1 lies in exactly one range, and nothing lies outside."""
    inside = all(len(r) == 0 or r.end < max_parallelism for r in ranges)
    return inside and all(count == 1 for count in key_group_coverage(ranges, max_parallelism))


def history_violations(head: PipelineHead, records: Sequence[CheckpointRecord]) -> list[str]:
    """Return what is wrong with one pipeline's history, in words; nothing when all is well.

    ``records`` are all rows of the pipeline. The laws: ids are distinct; at most one checkpoint
    is PENDING and it holds the newest epoch; every base, and the head, is committed and older
    than what stands on it, hence never one in quarantine; no epoch or generation is ahead of the pipeline's.
    A base may be without a row: a rebuilt catalog has none of what had been deleted before.
    """
    by_id = {r.checkpoint_id: r for r in records}
    found = [] if len(by_id) == len(records) else ["an id was used twice"]
    pending = [r for r in records if r.state is CheckpointState.PENDING and r.kind is SnapshotKind.CHECKPOINT]
    if len(pending) > 1:
        found.append(f"checkpoints {[r.checkpoint_id for r in pending]} are PENDING at the same time")
    found += [f"PENDING {r.checkpoint_id} has a superseded epoch" for r in pending if r.epoch != head.epoch]
    if head.head is not None and not _committed(by_id, head.head):
        found.append(f"head {head.head} is not committed")
    for record in records:
        found += _record_violations(head, record, by_id)
    return found


def _record_violations(
    head: PipelineHead, record: CheckpointRecord, by_id: Mapping[CheckpointId, CheckpointRecord]
) -> list[str]:
    name, found = record.checkpoint_id, []
    if record.epoch > head.epoch or record.generation > head.generation:
        found.append(f"{name} is ahead of its pipeline's epoch or generation")
    base = record.base
    if base is not None and not (base < name and (base not in by_id or _committed(by_id, base))):
        found.append(f"{name} stands on {base}, which is not an older committed checkpoint")
    found += _unfounded(record)
    return found


def _unfounded(record: CheckpointRecord) -> list[str]:
    """What is recorded of a state, against the state itself."""
    name, aside = record.checkpoint_id, record.state is CheckpointState.QUARANTINED
    if aside and (record.attempt is None or record.failure is None or record.completed_at_ms is not None):
        return [f"{name} is QUARANTINED without an attempt and a reason, or has a time of completion"]
    # What was disposed of in quarantine has a reason in place of the time.
    timed = record.completed_at_ms is not None or (
        record.state is not CheckpointState.COMPLETED and record.failure is not None
    )
    if record.state in COMMITTED and (record.attempt is None or not timed):
        return [f"{name} is {record.state} without an attempt and a time"]
    return []


def _committed(by_id: Mapping[CheckpointId, CheckpointRecord], checkpoint_id: CheckpointId) -> bool:
    record = by_id.get(checkpoint_id)
    return record is not None and is_committed(record)
