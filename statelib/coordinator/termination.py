"""Where a pipeline stands, decided from what is recorded of it: nobody keeps its status."""

from collections.abc import Sequence

from statelib.coordinator.retention import lineage
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import CheckpointId
from statelib.model.record import CheckpointRecord
from statelib.model.termination import JobStatus


def job_status(
    *,
    cancelled: bool,
    failures: int,
    tolerable_failures: int | None,
    last: DataInterval | None,
    schedule_end_ms: int | None,
) -> JobStatus:
    """``failures``: in a row. ``last``: the last interval applied. ``schedule_end_ms``: the last moment at which
    an interval of the schedule may start, None if it goes on for ever."""
    if cancelled:
        return JobStatus.CANCELED
    if schedule_end_ms is not None and last is not None and last.end_ms > schedule_end_ms:
        return JobStatus.FINISHED
    if tolerable_failures is not None and failures > tolerable_failures:
        return JobStatus.FAILED
    return JobStatus.RUNNING


def last_interval(records: Sequence[CheckpointRecord], head: CheckpointId | None) -> DataInterval | None:
    """The last interval that the state of ``head`` holds; None where its history names none."""
    history = lineage(records, head)
    known = [r for r in records if r.checkpoint_id in history and r.interval is not None]
    return max(known, key=lambda r: r.checkpoint_id).interval if known else None
