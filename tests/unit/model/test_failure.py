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


def test_every_failure_reason_has_a_message_and_a_consequence():
    assert set(FAILURES) == set(CheckpointFailureReason)
    assert len({f.message for f in FAILURES.values()}) == len(FAILURES)
    assert all(r.value == r.name for r in CheckpointFailureReason)


def test_only_reasons_that_flink_counts_and_failed_tasks_are_counted():
    assert set(COUNTED) == COUNTED_BY_FLINK | {"TASK_FAILURE"}


def test_only_failures_before_any_task_is_notified_are_pre_flight():
    assert {r for r in CheckpointFailureReason if r.pre_flight} == {"PERIODIC_SCHEDULER_SHUTDOWN", "IO_EXCEPTION"}


@pytest.mark.parametrize(
    ("policy", "discards"),
    [
        ("NEVER_RETAIN_AFTER_TERMINATION", {"FINISHED", "CANCELED", "FAILED"}),
        ("RETAIN_ON_FAILURE", {"FINISHED", "CANCELED"}),
        ("RETAIN_ON_CANCELLATION", {"FINISHED"}),
    ],
)
def test_checkpoints_outlive_a_pipeline_as_in_flinks_table(policy: str, discards: set[str]):
    assert DISCARDED[CheckpointRetentionPolicy(policy)] == discards
    assert JobStatus.RUNNING not in discards
    assert set(DISCARDED) == set(CheckpointRetentionPolicy)
