"""The lease row of a pipeline: its newest epoch, the next checkpoint id, its head.

Every transaction that changes a pipeline locks its lease row first, so that two transactions of one
pipeline run one after the other and cannot deadlock on other rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, select, text, update

from statelib.catalog.tables.rows import to_head
from statelib.catalog.tables.schema import ATTEMPT, CHECKPOINT, LEASE, REF
from statelib.coordinator.checkpoint_lifecycle import CheckpointEvent, after, before
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import SnapshotKind
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId, Epoch, PipelineName, issued_number
from statelib.model.record import CheckpointState, PipelineHead

_INSERT = text(
    "INSERT INTO lease (pipeline, epoch, next_id, generation, owner, heartbeat_at_ms) "
    "VALUES (:pipeline, 0, 1, 0, '', :now_ms) ON CONFLICT (pipeline) DO NOTHING"
)


@dataclass(frozen=True)
class AllocatedId:
    """A checkpoint id that was taken from a lease row, and the row after that."""

    head: PipelineHead
    checkpoint_id: CheckpointId


def lock(connection: Connection, pipeline: PipelineName, now_ms: int) -> PipelineHead:
    """Lock the pipeline's lease row until the transaction ends, and return it. Create the row if there is none."""
    connection.execute(_INSERT, {"pipeline": pipeline, "now_ms": now_ms})
    row = connection.execute(select(LEASE).where(LEASE.c.pipeline == pipeline).with_for_update()).one()
    return to_head(row)


def take_id(connection: Connection, pipeline: PipelineName) -> AllocatedId:
    """Take the next checkpoint id. The epoch does not change."""
    statement = update(LEASE).where(LEASE.c.pipeline == pipeline).values(next_id=LEASE.c.next_id + 1)
    row = connection.execute(statement.returning(LEASE)).one()
    number = issued_number(row._mapping[LEASE.c.next_id] - 1, pipeline, "checkpoint id")
    return AllocatedId(to_head(row), CheckpointId(number))


def take_epoch(connection: Connection, pipeline: PipelineName, owner: str, now_ms: int) -> Epoch:
    """Take a new epoch, larger than every earlier one, and return it. Only the newest epoch may move the head.

    One statement reads and increments the epoch. With a read followed by a write, two callers could get the
    same epoch, and both could move the head.
    """
    statement = (
        update(LEASE)
        .where(LEASE.c.pipeline == pipeline)
        .values(epoch=LEASE.c.epoch + 1, owner=owner, heartbeat_at_ms=now_ms)
    )
    epoch = connection.execute(statement.returning(LEASE.c.epoch)).scalar_one()
    return Epoch(issued_number(epoch, pipeline, "epoch"))


def move_head(
    connection: Connection, pipeline: PipelineName, epoch: Epoch, checkpoint_id: CheckpointId, now_ms: int
) -> bool:
    """Make ``checkpoint_id`` the pipeline's head. Return False, and change nothing, if ``epoch`` is not the newest."""
    statement = (
        update(LEASE)
        .where(LEASE.c.pipeline == pipeline, LEASE.c.epoch == epoch)
        .values(head=checkpoint_id, heartbeat_at_ms=now_ms)
    )
    return connection.execute(statement).rowcount == 1


def check_parallelism(parallelism: int | None) -> None:
    """Raise InvalidRequestError (``bad-parallelism``) unless the number is one of at least 1 subtask, or None."""
    if parallelism is not None and parallelism < 1:
        raise InvalidRequestError(f"parallelism {parallelism}: expected 1 or more", kind="bad-parallelism")


def released() -> dict[str, object]:
    """Return the columns that let a pipeline begin checkpoints again after it was cancelled or failed too often."""
    return {"cancelled_at_ms": None, "failures_from": LEASE.c.next_id}


def cancel(connection: Connection, pipeline: PipelineName, now_ms: int) -> PipelineHead:
    """Cancel the pipeline: it begins no more checkpoints."""
    statement = update(LEASE).where(LEASE.c.pipeline == pipeline).values(cancelled_at_ms=now_ms)
    return to_head(connection.execute(statement.returning(LEASE)).one())


def supersede(
    connection: Connection,
    pipeline: PipelineName,
    failure: CheckpointFailureReason,
    reason: str,
    kinds: tuple[SnapshotKind, ...],
) -> None:
    """Abort the pending checkpoints of these kinds. Their files stay until the orphan sweep deletes them."""
    values = {"state": after(CheckpointEvent.SUPERSEDED), "failure": failure, "reason": reason}
    _abort(connection, pipeline, values, CHECKPOINT.c.kind.in_(kinds))


def expire(connection: Connection, pipeline: PipelineName, now_ms: int) -> None:
    """Abort checkpoints and savepoints that are pending beyond their deadline: no process works on them any more."""
    failure = CheckpointFailureReason.CHECKPOINT_EXPIRED
    values = {"state": after(CheckpointEvent.FAILED), "failure": failure, "reason": failure.message}
    _abort(connection, pipeline, values, CHECKPOINT.c.deadline_ms < now_ms)


def _abort(
    connection: Connection, pipeline: PipelineName, values: Mapping[str, object], which: ColumnElement[bool]
) -> None:
    pending = CHECKPOINT.c.state.in_(before(CheckpointEvent.FAILED))
    connection.execute(update(CHECKPOINT).where(CHECKPOINT.c.pipeline == pipeline, pending, which).values(values))
    abort_attempts(connection, pipeline)


def abort_attempts(connection: Connection, pipeline: PipelineName) -> None:
    """Mark the attempts of aborted checkpoints as ABORTED, so that the orphan sweep may delete their files, and delete
    the references to the files of their bases. If an aborted savepoint had stopped the pipeline, the pipeline goes on,
    unless it was cancelled since."""
    aborted = select(CHECKPOINT.c.checkpoint_id).where(
        CHECKPOINT.c.pipeline == pipeline, CHECKPOINT.c.state == CheckpointState.ABORTED
    )
    connection.execute(
        update(ATTEMPT)
        .where(ATTEMPT.c.pipeline == pipeline, ATTEMPT.c.state == "OPEN", ATTEMPT.c.checkpoint_id.in_(aborted))
        .values(state="ABORTED")
    )
    connection.execute(delete(REF).where(REF.c.pipeline == pipeline, REF.c.checkpoint_id.in_(aborted)))
    stops = select(CHECKPOINT.c.created_at_ms).where(
        CHECKPOINT.c.pipeline == pipeline, CHECKPOINT.c.state == CheckpointState.ABORTED, CHECKPOINT.c.stop.is_not(None)
    )
    stopped_by_aborted = (LEASE.c.pipeline == pipeline) & LEASE.c.cancelled_at_ms.in_(stops)
    connection.execute(update(LEASE).where(stopped_by_aborted).values(cancelled_at_ms=None))
