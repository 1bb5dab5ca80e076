"""The restore of a pipeline: another checkpoint becomes its head, in a new generation."""

from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from statelib.catalog.commit import holdings, leases
from statelib.catalog.refusals import described
from statelib.catalog.tables import queries
from statelib.catalog.tables.rows import to_head
from statelib.catalog.tables.schema import LEASE, RESTORE
from statelib.errors import ConflictError, InvalidRequestError
from statelib.model.checkpoint import SnapshotKind
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId, PipelineName, issued_number
from statelib.model.record import CheckpointState, PipelineHead

NO_HEAD = 0
"""The number that stands for the head of a pipeline without one."""

_BOTH = (SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT)


@dataclass(frozen=True)
class Restore:
    """The wish to restore ``checkpoint_id``. ``parallelism``: None keeps the present value. ``claim``: the system owns
    the files from now on. ``instead_of``: the only head to replace, or :data:`NO_HEAD`; None allows any. ``key``: a
    restore with this key is done once; '' for one that is never repeated."""

    checkpoint_id: CheckpointId
    parallelism: int | None
    owner: str
    claim: bool
    instead_of: CheckpointId | None
    key: str


def restore(connection: Connection, pipeline: PipelineName, wish: Restore, now_ms: int) -> PipelineHead:
    """Carry out a restore, unless one with its key was done before, and return the pipeline's head. Raises as
    :meth:`~statelib.catalog.catalog.Catalog.restore`."""
    head = leases.lock(connection, pipeline, now_ms)
    if _is_done(connection, pipeline, wish.key):
        return head
    _check_replaced(head, wish)
    record = queries.record(connection, pipeline, wish.checkpoint_id)
    if record.state is not CheckpointState.COMPLETED:
        raise InvalidRequestError(
            f"checkpoint {pipeline}/{wish.checkpoint_id} is {described(record)}: expected a COMPLETED one",
            kind="not-completed",
        )
    leases.take_epoch(connection, pipeline, wish.owner, now_ms)
    reason = f"superseded by the restore of {wish.checkpoint_id} by {wish.owner}"
    leases.supersede(connection, pipeline, CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND, reason, _BOTH)
    if wish.claim:
        holdings.claim(connection, pipeline, wish.checkpoint_id)
    if wish.key:
        done = {"pipeline": pipeline, "idempotency_key": wish.key, "checkpoint_id": wish.checkpoint_id}
        connection.execute(insert(RESTORE).values(**done, restored_at_ms=now_ms))
    return _move_head(connection, pipeline, wish)


def _is_done(connection: Connection, pipeline: PipelineName, key: str) -> bool:
    """Return whether a restore with this key was done. '' is the key of none."""
    done = select(RESTORE.c.checkpoint_id).where(RESTORE.c.pipeline == pipeline, RESTORE.c.idempotency_key == key)
    return connection.execute(done).first() is not None


def _check_replaced(head: PipelineHead, wish: Restore) -> None:
    """Raise ConflictError (``plan-changed``) if the head is neither the one to replace nor the restored checkpoint
    already, as after a restore that is repeated."""
    expected = wish.instead_of
    if expected is not None and (head.head or NO_HEAD) not in (expected, wish.checkpoint_id):
        raise ConflictError(
            f"pipeline {head.pipeline} moved on: its head was checkpoint {expected or None} when the restore was"
            f" planned, and is {head.head} now; nothing was changed",
            kind="plan-changed",
            hint="plan the restore again",
        )


def _move_head(connection: Connection, pipeline: PipelineName, wish: Restore) -> PipelineHead:
    values = {"head": wish.checkpoint_id, "generation": LEASE.c.generation + 1, **leases.released()}
    if wish.parallelism is not None:
        values["parallelism"] = wish.parallelism
    statement = update(LEASE).where(LEASE.c.pipeline == pipeline).values(values)
    head = to_head(connection.execute(statement.returning(LEASE)).one())
    issued_number(head.generation, pipeline, "generation")
    return head
