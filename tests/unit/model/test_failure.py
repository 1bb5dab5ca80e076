"""The reasons why checkpoints fail, held against Flink's tables."""

import pytest

from statelib.model.failure import COUNTED, FAILURES, CheckpointFailureReason
from statelib.model.termination import DISCARDED, CheckpointRetentionPolicy, JobStatus

COUNTED_BY_FLINK = {
    "IO_EXCEPTION",
    "CHECKPOINT_ASYNC_EXCEPTION",
    "CHECKPOINT_DECLINED",
    "CHECKPOINT_EXPIRED",
    "FINALIZE_CHECKPOINT_FAILURE",
}


def test_every_reason_says_what_follows_from_it():
    assert set(FAILURES) == set(CheckpointFailureReason)
    assert len({f.message for f in FAILURES.values()}) == len(FAILURES)
    assert all(r.value == r.name for r in CheckpointFailureReason)


def test_those_count_that_flink_counts_and_failed_tasks():
    assert set(COUNTED) == COUNTED_BY_FLINK | {"TASK_FAILURE"}


def test_pre_flight_are_those_that_no_task_hears_of():
    assert {r for r in CheckpointFailureReason if r.pre_flight} == {"PERIODIC_SCHEDULER_SHUTDOWN", "IO_EXCEPTION"}


@pytest.mark.parametrize(
    ("policy", "discards"),
    [
        ("NEVER_RETAIN_AFTER_TERMINATION", {"FINISHED", "CANCELED", "FAILED"}),
        ("RETAIN_ON_FAILURE", {"FINISHED", "CANCELED"}),
        ("RETAIN_ON_CANCELLATION", {"FINISHED"}),
    ],
)
def test_what_outlives_a_pipeline_is_flinks_table(policy: str, discards: set[str]):
    assert DISCARDED[CheckpointRetentionPolicy(policy)] == discards
    assert JobStatus.RUNNING not in discards
    assert set(DISCARDED) == set(CheckpointRetentionPolicy)
