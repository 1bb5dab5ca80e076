"""The lifecycle of a pipeline, and retention after its end."""

import dataclasses

import pytest

from statelib.coordinator.retention import RetentionPolicy, subsumed
from statelib.coordinator.termination import job_status, last_interval
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import CheckpointId
from statelib.model.record import Owner
from statelib.model.termination import DISCARDED, CheckpointRetentionPolicy, JobStatus
from tests.unit.coordinator.checkpoints import checkpoint, savepoint

CHAIN = [checkpoint(n, n - 1 or None) for n in range(1, 4)]


@pytest.mark.parametrize(
    ("cancelled", "failures", "tolerable", "last_end_ms", "status"),
    [
        (False, 0, 0, 10, JobStatus.RUNNING),
        (False, 9, None, 10, JobStatus.RUNNING),
        (False, 2, 2, 10, JobStatus.RUNNING),
        (False, 3, 2, 10, JobStatus.FAILED),
        (True, 3, 2, 10, JobStatus.CANCELED),
        (True, 0, None, 21, JobStatus.CANCELED),
        (False, 3, 2, 21, JobStatus.FINISHED),
        (False, 0, None, 20, JobStatus.RUNNING),
        (False, 0, None, None, JobStatus.RUNNING),
    ],
)
def test_the_status_follows_from_the_recorded_checkpoints_and_the_schedule(
    cancelled: bool, failures: int, tolerable: int | None, last_end_ms: int | None, status: JobStatus
):
    """The schedule's last interval starts at 20 at the latest: the pipeline is finished when an interval that ends
    later is applied."""
    last = None if last_end_ms is None else DataInterval(last_end_ms - 10, last_end_ms)
    result = job_status(
        cancelled=cancelled, failures=failures, tolerable_failures=tolerable, last=last, schedule_end_ms=20
    )
    assert result is status


def test_a_schedule_without_an_end_is_never_finished():
    last = DataInterval(0, 10**15)
    status = job_status(cancelled=False, failures=0, tolerable_failures=None, last=last, schedule_end_ms=None)
    assert status is JobStatus.RUNNING


def test_the_last_interval_is_taken_from_the_history_of_the_head():
    def at(number: int, base: int | None):
        return dataclasses.replace(checkpoint(number, base), interval=DataInterval(number * 10, number * 10 + 10))

    records = [at(1, None), at(2, 1), at(3, 2), savepoint(4, 2)]
    assert last_interval(records, CheckpointId(4)) == DataInterval(20, 30), "3 was left behind"
    assert last_interval(records, None) is None


@pytest.mark.parametrize("policy", CheckpointRetentionPolicy)
@pytest.mark.parametrize("status", JobStatus)
def test_an_ended_pipeline_keeps_all_or_only_checkpoints_in_use_and_savepoints(
    policy: CheckpointRetentionPolicy, status: JobStatus
):
    records = [*CHAIN, savepoint(4, 3), savepoint(5, 3, owner=Owner.SYSTEM)]
    result = subsumed(RetentionPolicy(9, after_termination=policy), records, CheckpointId(3), {CheckpointId(2)}, status)
    assert result == ((1, 3, 5) if status in DISCARDED[policy] else ())


def test_without_a_policy_the_checkpoints_outlive_the_pipeline():
    for status in JobStatus:
        assert subsumed(RetentionPolicy(9), CHAIN, CheckpointId(3), (), status) == ()
