"""The status of a pipeline, computed from its records: it is not stored anywhere."""

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
    """Return the status of a pipeline.

    Args:
        cancelled: Whether the pipeline was cancelled.
        failures: The number of failed checkpoints in a row.
        tolerable_failures: The greatest number of failures in a row that is tolerated; None for no limit.
        last: The last interval that was applied; None if there is none.
        schedule_end_ms: The latest time at which an interval of the schedule may start, in milliseconds since the
            epoch; None if the schedule has no end.
    """
    if cancelled:
        return JobStatus.CANCELED
    if schedule_end_ms is not None and last is not None and last.end_ms > schedule_end_ms:
        return JobStatus.FINISHED
    if tolerable_failures is not None and failures > tolerable_failures:
        return JobStatus.FAILED
    return JobStatus.RUNNING


def last_interval(records: Sequence[CheckpointRecord], head: CheckpointId | None) -> DataInterval | None:
    """Return the last interval whose events the state at ``head`` contains.

    It is None if no checkpoint in the lineage of ``head`` has an interval."""
    lineage_ids = lineage(records, head)
    with_interval = [r for r in records if r.checkpoint_id in lineage_ids and r.interval is not None]
    return max(with_interval, key=lambda r: r.checkpoint_id).interval if with_interval else None
