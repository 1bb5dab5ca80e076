"""Why a checkpoint did not complete: Flink's names, and what follows from each, as data.

Source: CheckpointFailureReason and CheckpointFailureManager of Flink.
"""

import re
from dataclasses import dataclass
from enum import StrEnum


class CheckpointFailureReason(StrEnum):
    """The names are stored in the catalog: append-only."""

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
        return FAILURES[self].message

    @property
    def pre_flight(self) -> bool:
        """Whether it happens before any task hears of the checkpoint: such a one has no row."""
        return FAILURES[self].pre_flight

    @property
    def counts(self) -> bool:
        """Whether ``checkpoint.tolerable_failures`` counts it."""
        return FAILURES[self].counts


@dataclass(frozen=True)
class Failure:
    message: str
    pre_flight: bool
    counts: bool


_R = CheckpointFailureReason
FAILURES: dict[CheckpointFailureReason, Failure] = {
    _R.PERIODIC_SCHEDULER_SHUTDOWN: Failure("the pipeline was told to begin no checkpoints", True, False),
    _R.IO_EXCEPTION: Failure("the storage could not take a new checkpoint", True, True),
    _R.CHECKPOINT_ASYNC_EXCEPTION: Failure("a subtask could not write its state", False, True),
    _R.CHECKPOINT_EXPIRED: Failure("it was not complete before its deadline", False, True),
    _R.CHECKPOINT_SUBSUMED: Failure("a newer checkpoint took its place", False, False),
    _R.CHECKPOINT_DECLINED: Failure("a subtask declined it", False, True),
    _R.CHECKPOINT_COORDINATOR_SHUTDOWN: Failure("its run, or its pipeline, was cancelled", False, False),
    _R.CHECKPOINT_COORDINATOR_SUSPEND: Failure("the pipeline was restored while it was pending", False, False),
    # Flink leaves it to the job's restart strategy. When Airflow has given up restarting, nobody else counts it.
    _R.TASK_FAILURE: Failure("a task of its run failed", False, True),
    _R.FINALIZE_CHECKPOINT_FAILURE: Failure("its parts could not be made one complete checkpoint", False, True),
}


def decline_note(attempt: str, subtask: int, reason: CheckpointFailureReason, error: BaseException) -> str:
    """Return one line that a subtask adds to its error: all that reaches a Spark driver is the error's text. The
    attempt is what no text of a user's function can hold."""
    told = " ".join(f"{type(error).__name__}: {error}".split())
    return f"statelib {attempt}: subtask {subtask} declined the checkpoint, {reason}: {told[:500]}"


def failure_in(error: BaseException, attempt: str) -> tuple[CheckpointFailureReason, str]:
    """Return why an attempt failed, from the error that its driver saw: what a subtask declined it for, else that a
    task failed."""
    text = str(error)
    found = re.search(rf"statelib {attempt}: (subtask \d+ declined the checkpoint, ([A-Z_]+): .*)", text)
    if found is not None and found[2] in CheckpointFailureReason.__members__:
        return CheckpointFailureReason(found[2]), found[1]
    first = next((line for line in text.splitlines() if line.strip()), "")
    return CheckpointFailureReason.TASK_FAILURE, f"{type(error).__name__}: {first[:500]}"


COUNTED = tuple(reason for reason in CheckpointFailureReason if reason.counts)
