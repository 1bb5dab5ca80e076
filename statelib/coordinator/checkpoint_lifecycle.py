"""The life of one checkpoint, as a table: which event is legal in which state, and which state follows.

Two rules hold for the whole table.

- A checkpoint becomes COMPLETED only by GATE_PASSED, or by RELEASED after the gate has set it aside. No event makes a
  COMPLETED checkpoint PENDING again or ABORTED.
- FAILED and SUPERSEDED delete nothing. Files are removed only in the state DELETING. It follows only on COMPLETED and
  QUARANTINED, the states in which the catalog has recorded the files. The orphan sweep removes what an aborted attempt
  has written.
"""

from enum import StrEnum

from statelib.model.record import CheckpointRecord, CheckpointState


class CheckpointEvent(StrEnum):
    """The events that can happen to a checkpoint. Their values are stored nowhere and may be renamed."""

    GATE_PASSED = "GATE_PASSED"
    """All checks of the gate have passed: the next transaction is the commit point."""
    SET_ASIDE = "SET_ASIDE"
    """The checkpoint is complete, but a check with the severity ``quarantine`` has failed."""
    RELEASED = "RELEASED"
    """A person has examined a checkpoint that was set aside, and accepts it."""
    FAILED = "FAILED"
    """A subtask declined, a check failed, or the run was given up."""
    SUPERSEDED = "SUPERSEDED"
    """A run with a newer epoch has taken over the pipeline."""
    SUBSUMED = "SUBSUMED"
    """Retention, or the owner of the checkpoint, no longer keeps it."""
    DISCARDED = "DISCARDED"
    """The last of its own files has been removed."""


_PENDING, _COMPLETED = CheckpointState.PENDING, CheckpointState.COMPLETED
_QUARANTINED = CheckpointState.QUARANTINED
_ABORTED, _DELETING = CheckpointState.ABORTED, CheckpointState.DELETING

TRANSITIONS: dict[tuple[CheckpointState, CheckpointEvent], CheckpointState] = {
    (_PENDING, CheckpointEvent.GATE_PASSED): _COMPLETED,
    (_PENDING, CheckpointEvent.SET_ASIDE): _QUARANTINED,
    (_QUARANTINED, CheckpointEvent.RELEASED): _COMPLETED,
    (_PENDING, CheckpointEvent.FAILED): _ABORTED,
    (_PENDING, CheckpointEvent.SUPERSEDED): _ABORTED,
    (_COMPLETED, CheckpointEvent.SUBSUMED): _DELETING,
    (_QUARANTINED, CheckpointEvent.SUBSUMED): _DELETING,
    (_DELETING, CheckpointEvent.DISCARDED): CheckpointState.DELETED,
}
"""(state, event) -> the state that follows. A pair that is missing is illegal."""

COMMITTED = (CheckpointState.COMPLETED, CheckpointState.DELETING, CheckpointState.DELETED)
"""The states of checkpoints that have passed their commit point, whether their files still exist or not. A checkpoint
that was deleted out of quarantine is DELETING or DELETED too but never passed it: it has no ``completed_at_ms``."""


def is_committed(record: CheckpointRecord) -> bool:
    """Return whether the checkpoint has ever passed its commit point."""
    return record.state in COMMITTED and record.completed_at_ms is not None


def before(event: CheckpointEvent) -> tuple[CheckpointState, ...]:
    """Return the states in which ``event`` is legal: the condition of the UPDATE that records it."""
    return tuple(state for state, legal_event in TRANSITIONS if legal_event is event)


def after(event: CheckpointEvent) -> CheckpointState:
    """Return the state that follows on ``event``: the value that the UPDATE writes. An event has only one."""
    (state,) = {target for (_, legal_event), target in TRANSITIONS.items() if legal_event is event}
    return state
