"""The life of one checkpoint, as a table: which event is legal in which state, and which state follows.

Two rules hold for the whole table. Only GATE_PASSED makes a checkpoint COMPLETED, or a person who
RELEASED one that the gate had set aside, and no event takes a COMPLETED one back. Giving up deletes
nothing: bytes are removed only from DELETING on, which is reached only from where files are recorded,
COMPLETED and QUARANTINED. What an aborted attempt left behind is the orphan sweep's.
"""

from enum import StrEnum

from statelib.model.record import CheckpointRecord, CheckpointState


class CheckpointEvent(StrEnum):
    """What can happen to a checkpoint. The words are stored nowhere and may be renamed."""

    GATE_PASSED = "GATE_PASSED"
    """All checks held: the next transaction is the commit point."""
    SET_ASIDE = "SET_ASIDE"
    """It is whole, but a check of severity quarantine did not hold."""
    RELEASED = "RELEASED"
    """A person looked at what was set aside, and takes it as good."""
    FAILED = "FAILED"
    """A subtask declined, a check failed, or somebody gave up."""
    SUPERSEDED = "SUPERSEDED"
    """A newer epoch took over the pipeline."""
    SUBSUMED = "SUBSUMED"
    """Retention, or its owner, lets go of it."""
    DISCARDED = "DISCARDED"
    """None of its own files is left."""


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
"""State and event -> the state that follows; what is not here never happens."""

COMMITTED = (CheckpointState.COMPLETED, CheckpointState.DELETING, CheckpointState.DELETED)
"""States of a checkpoint that has passed its commit point, whatever became of its files since. One that was disposed of
in quarantine never did: it has no ``completed_at_ms``."""


def is_committed(record: CheckpointRecord) -> bool:
    """Whether the checkpoint has ever passed its commit point."""
    return record.state in COMMITTED and record.completed_at_ms is not None


def before(event: CheckpointEvent) -> tuple[CheckpointState, ...]:
    """The states in which ``event`` is legal: what a conditional UPDATE must find."""
    return tuple(state for state, e in TRANSITIONS if e is event)


def after(event: CheckpointEvent) -> CheckpointState:
    """The state that ``event`` leads to: what a conditional UPDATE writes. It is the same from
    every state in which the event is legal."""
    (state,) = {target for (_, e), target in TRANSITIONS.items() if e is event}
    return state
