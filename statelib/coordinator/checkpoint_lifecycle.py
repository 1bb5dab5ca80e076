"""The life of one checkpoint, as a table: which event is legal in which state, and what it sets off.

Two rules hold for the whole table. Only GATE_PASSED makes a checkpoint COMPLETED, or a person who
RELEASED one that the gate had set aside, and no event takes a COMPLETED one back. Giving up deletes
nothing: bytes are removed only from DELETING on, which is reached only from where files are recorded,
COMPLETED and QUARANTINED. What an aborted attempt left behind is the orphan sweep's.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from statelib.errors import ConflictError
from statelib.model.checkpoint import SnapshotKind
from statelib.model.record import CheckpointRecord, CheckpointState


class CheckpointEvent(StrEnum):
    """What can happen to a checkpoint. The words are stored nowhere and may be renamed."""

    ACKNOWLEDGED = "ACKNOWLEDGED"
    """Every subtask delivered its state, and together they cover all key groups."""
    PUBLISHED = "PUBLISHED"
    """``_metadata`` is durable."""
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


class Command(StrEnum):
    """What a flow has to do next, in the order given."""

    PUBLISH_METADATA = "PUBLISH_METADATA"
    RUN_GATE = "RUN_GATE"
    RECORD_FILES = "RECORD_FILES"
    MOVE_HEAD = "MOVE_HEAD"
    RELEASE_FILES = "RELEASE_FILES"
    DELETE_METADATA = "DELETE_METADATA"
    DELETE_DATA = "DELETE_DATA"


@dataclass(frozen=True)
class Lifecycle:
    """Where a checkpoint stands: its kind never changes, its state only by :func:`handle`."""

    kind: SnapshotKind
    state: CheckpointState = CheckpointState.PENDING


_PENDING, _COMPLETED = CheckpointState.PENDING, CheckpointState.COMPLETED
_QUARANTINED = CheckpointState.QUARANTINED
_ABORTED, _DELETING = CheckpointState.ABORTED, CheckpointState.DELETING

# `_metadata` goes first, so that where it is present, everything it names is.
_REMOVE = (Command.RELEASE_FILES, Command.DELETE_METADATA, Command.DELETE_DATA)

TRANSITIONS: dict[tuple[CheckpointState, CheckpointEvent], tuple[CheckpointState, tuple[Command, ...]]] = {
    (_PENDING, CheckpointEvent.ACKNOWLEDGED): (_PENDING, (Command.PUBLISH_METADATA,)),
    (_PENDING, CheckpointEvent.PUBLISHED): (_PENDING, (Command.RUN_GATE,)),
    (_PENDING, CheckpointEvent.GATE_PASSED): (_COMPLETED, (Command.RECORD_FILES, Command.MOVE_HEAD)),
    (_PENDING, CheckpointEvent.SET_ASIDE): (_QUARANTINED, (Command.RECORD_FILES,)),
    (_QUARANTINED, CheckpointEvent.RELEASED): (_COMPLETED, (Command.MOVE_HEAD,)),
    (_PENDING, CheckpointEvent.FAILED): (_ABORTED, ()),
    (_PENDING, CheckpointEvent.SUPERSEDED): (_ABORTED, ()),
    (_COMPLETED, CheckpointEvent.SUBSUMED): (_DELETING, _REMOVE),
    (_QUARANTINED, CheckpointEvent.SUBSUMED): (_DELETING, _REMOVE),
    (_DELETING, CheckpointEvent.DISCARDED): (CheckpointState.DELETED, ()),
}

COMMITTED = (CheckpointState.COMPLETED, CheckpointState.DELETING, CheckpointState.DELETED)
"""States of a checkpoint that has passed its commit point, whatever became of its files since. One that was disposed of
in quarantine never did: it has no ``completed_at_ms``."""


def is_committed(record: CheckpointRecord) -> bool:
    """Whether the checkpoint has ever passed its commit point."""
    return record.state in COMMITTED and record.completed_at_ms is not None


def handle(lifecycle: Lifecycle, event: CheckpointEvent) -> tuple[Lifecycle, tuple[Command, ...]]:
    """The lifecycle after ``event``, and the commands it sets off; pure.

    A savepoint is the user's copy beside the pipeline's history: it never moves the head.
    Raises ConflictError (kind ``illegal-transition``) naming the event, the state and the events
    that were legal.
    """
    if (lifecycle.state, event) not in TRANSITIONS:
        legal = ", ".join(sorted(e for s, e in TRANSITIONS if s is lifecycle.state)) or "none"
        raise ConflictError(
            f"event {event} on a {lifecycle.kind.lower()} that is {lifecycle.state}: expected one of: {legal}",
            kind="illegal-transition",
        )
    state, commands = TRANSITIONS[lifecycle.state, event]
    if lifecycle.kind is SnapshotKind.SAVEPOINT:
        commands = tuple(c for c in commands if c is not Command.MOVE_HEAD)
    return replace(lifecycle, state=state), commands


def before(event: CheckpointEvent) -> tuple[CheckpointState, ...]:
    """The states in which ``event`` is legal: what a conditional UPDATE must find."""
    return tuple(state for state, e in TRANSITIONS if e is event)


def after(event: CheckpointEvent) -> CheckpointState:
    """The state that ``event`` leads to: what a conditional UPDATE writes. It is the same from
    every state in which the event is legal."""
    (state,) = {target for (_, e), (target, _) in TRANSITIONS.items() if e is event}
    return state
