"""How a pipeline ends, and what becomes of its checkpoints then: Flink's table, as data.

Source: JobStatus, CheckpointRetentionPolicy and CheckpointProperties of Flink.
"""

from enum import StrEnum


class JobStatus(StrEnum):
    """Flink's words for where a job stands; only RUNNING begins checkpoints."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    """The last interval of its schedule is applied."""
    FAILED = "FAILED"
    """More checkpoints failed in a row than are tolerated."""
    CANCELED = "CANCELED"
    """Its user cancelled it."""


class StopMode(StrEnum):
    """How a pipeline is stopped with a savepoint; the values are stored in the catalog."""

    SUSPEND = "SUSPEND"
    """Timers and windows stay as they are: whoever restores the savepoint goes on with them."""
    DRAIN = "DRAIN"
    """Event time goes to its end first: every event-time timer fires and every window closes."""


class CheckpointRetentionPolicy(StrEnum):
    """When the checkpoints of a pipeline outlive it. Savepoints always do."""

    NEVER_RETAIN_AFTER_TERMINATION = "NEVER_RETAIN_AFTER_TERMINATION"
    RETAIN_ON_FAILURE = "RETAIN_ON_FAILURE"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"


_S, _P = JobStatus, CheckpointRetentionPolicy
DISCARDED: dict[CheckpointRetentionPolicy, frozenset[JobStatus]] = {
    _P.NEVER_RETAIN_AFTER_TERMINATION: frozenset({_S.FINISHED, _S.CANCELED, _S.FAILED}),
    _P.RETAIN_ON_FAILURE: frozenset({_S.FINISHED, _S.CANCELED}),
    _P.RETAIN_ON_CANCELLATION: frozenset({_S.FINISHED}),
}
"""The ends at which a policy lets go of all checkpoints of a pipeline."""
