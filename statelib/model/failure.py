"""The reasons why a checkpoint did not complete, under Flink's names, and the consequences of each, as a table.

Source: docs/spec/protocol.md#states-of-a-checkpoint; CheckpointFailureReason and CheckpointFailureManager of Flink.
"""

from dataclasses import dataclass
from enum import StrEnum


class CheckpointFailureReason(StrEnum):
    """The reason why a checkpoint did not complete. The names are stored in the catalog: add new ones, change none."""

    PERIODIC_SCHEDULER_SHUTDOWN = "PERIODIC_SCHEDULER_SHUTDOWN"
    IO_EXCEPTION = "IO_EXCEPTION"
    CHECKPOINT_ASYNC_EXCEPTION = "CHECKPOINT_ASYNC_EXCEPTION"
    CHECKPOINT_EXPIRED = "CHECKPOINT_EXPIRED"
    CHECKPOINT_SUBSUMED = "CHECKPOINT_SUBSUMED"
    CHECKPOINT_DECLINED = "CHECKPOINT_DECLINED"
    CHECKPOINT_COORDINATOR_SHUTDOWN = "CHECKPOINT_COORDINATOR_SHUTDOWN"
    CHECKPOINT_COORDINATOR_SUSPEND = "CHECKPOINT_COORDINATOR_SUSPEND"
    TASK_FAILURE = "TASK_FAILURE"
    FINALIZE_CHECKPOINT_FAILURE = "FINALIZE_CHECKPOINT_FAILURE"

    @property
    def message(self) -> str:
        """The reason as a sentence part for people."""
        return FAILURES[self].message

    @property
    def pre_flight(self) -> bool:
        """Whether the failure happens before the checkpoint begins. The catalog has no row of such a checkpoint."""
        return FAILURES[self].pre_flight

    @property
    def counts(self) -> bool:
        """Whether ``checkpoint.tolerable_failures`` counts failures with this reason."""
        return FAILURES[self].counts


@dataclass(frozen=True)
class Failure:
    """One row of the table :data:`FAILURES`; the fields are those of :class:`CheckpointFailureReason`."""

    message: str
    pre_flight: bool
    counts: bool


_R = CheckpointFailureReason
FAILURES: dict[CheckpointFailureReason, Failure] = {
    _R.PERIODIC_SCHEDULER_SHUTDOWN: Failure("the pipeline is stopped and begins no checkpoints", True, False),
    _R.IO_EXCEPTION: Failure("the storage could not take a new checkpoint", True, True),
    _R.CHECKPOINT_ASYNC_EXCEPTION: Failure("a subtask could not write its state", False, True),
    _R.CHECKPOINT_EXPIRED: Failure("it was not complete before its deadline", False, True),
    _R.CHECKPOINT_SUBSUMED: Failure("a newer checkpoint took its place", False, False),
    _R.CHECKPOINT_DECLINED: Failure("a subtask declined it", False, True),
    _R.CHECKPOINT_COORDINATOR_SHUTDOWN: Failure("its run, or its pipeline, was cancelled", False, False),
    _R.CHECKPOINT_COORDINATOR_SUSPEND: Failure("the pipeline was restored while it was pending", False, False),
    # In Flink the job's restart strategy counts task failures. Here a task has failed when Airflow retries it no more.
    _R.TASK_FAILURE: Failure("a task of its run failed", False, True),
    _R.FINALIZE_CHECKPOINT_FAILURE: Failure("its parts could not be made one complete checkpoint", False, True),
}


COUNTED = tuple(reason for reason in CheckpointFailureReason if reason.counts)
"""The reasons that ``checkpoint.tolerable_failures`` counts."""
