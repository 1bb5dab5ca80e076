"""The ways in which a pipeline ends, and whether its checkpoints are then deleted, as a table. The rules are Flink's.

Source: docs/spec/protocol.md#removal; JobStatus, CheckpointRetentionPolicy and CheckpointProperties of Flink.
"""

from enum import StrEnum


class JobStatus(StrEnum):
    """Flink's status of a job, here of a pipeline. A pipeline begins checkpoints only while RUNNING."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    """The last interval of its schedule is applied."""
    FAILED = "FAILED"
    """More checkpoints failed in a row than ``checkpoint.tolerable_failures`` allows."""
    CANCELED = "CANCELED"
    """A person cancelled it."""


class StopMode(StrEnum):
    """The way in which a pipeline is stopped with a savepoint. The values are stored in the catalog."""

    SUSPEND = "SUSPEND"
    """Timers and windows stay as they are: a job that restores the savepoint continues with them."""
    DRAIN = "DRAIN"
    """Event time goes to its end first: every event-time timer fires and every window closes."""


class CheckpointRetentionPolicy(StrEnum):
    """The rule that decides whether the checkpoints of a pipeline are kept after it ends. Savepoints are always
    kept."""

    NEVER_RETAIN_AFTER_TERMINATION = "NEVER_RETAIN_AFTER_TERMINATION"
    RETAIN_ON_FAILURE = "RETAIN_ON_FAILURE"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"


_S, _P = JobStatus, CheckpointRetentionPolicy
DISCARDED: dict[CheckpointRetentionPolicy, frozenset[JobStatus]] = {
    _P.NEVER_RETAIN_AFTER_TERMINATION: frozenset({_S.FINISHED, _S.CANCELED, _S.FAILED}),
    _P.RETAIN_ON_FAILURE: frozenset({_S.FINISHED, _S.CANCELED}),
    _P.RETAIN_ON_CANCELLATION: frozenset({_S.FINISHED}),
}
"""The final statuses, per policy, after which all checkpoints of the pipeline are deleted."""
