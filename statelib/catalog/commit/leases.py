"""The lease row of a pipeline: who coordinates it (epoch), what comes next (id), where it stands (head).

Every change of a pipeline goes through its lease row first, so that two transactions of one
pipeline wait for each other there and never meet in the opposite order further on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, select, text, update

from statelib.catalog.tables.rows import to_head
from statelib.catalog.tables.schema import ATTEMPT, CHECKPOINT, LEASE, REF
from statelib.coordinator.checkpoint_lifecycle import CheckpointEvent, after, before
from statelib.model.checkpoint import SnapshotKind
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId, Epoch, PipelineName, issued_number
from statelib.model.record import CheckpointState, PipelineHead

_INSERT = text(
    "INSERT INTO lease (pipeline, epoch, next_id, generation, owner, heartbeat_at_ms) "
    "VALUES (:pipeline, 0, 1, 0, '', :now_ms) ON CONFLICT (pipeline) DO NOTHING"
)


@dataclass(frozen=True)
class Taken:
    """A lease row after it was changed, and the checkpoint id that was taken from it."""

    head: PipelineHead
    checkpoint_id: CheckpointId


def lock(connection: Connection, pipeline: PipelineName, now_ms: int) -> PipelineHead:
    """Where the pipeline stands; made if new, and held against other writers until the transaction ends."""
    connection.execute(_INSERT, {"pipeline": pipeline, "now_ms": now_ms})
    row = connection.execute(select(LEASE).where(LEASE.c.pipeline == pipeline).with_for_update()).one()
    return to_head(row)


def take_id(connection: Connection, pipeline: PipelineName) -> Taken:
    """The next checkpoint id; the epoch stays as it is."""
    statement = update(LEASE).where(LEASE.c.pipeline == pipeline).values(next_id=LEASE.c.next_id + 1)
    row = connection.execute(statement.returning(LEASE)).one()
    number = issued_number(row._mapping[LEASE.c.next_id] - 1, pipeline, "checkpoint id")
    return Taken(to_head(row), CheckpointId(number))


def take_epoch(connection: Connection, pipeline: PipelineName, owner: str, now_ms: int) -> Epoch:
    """Become the pipeline's only coordinator: a larger epoch than anybody ever had.

    One statement reads and raises it. A read followed by a write would hand two callers the
    same epoch, and the fence would keep out neither.
    """
    statement = (
        update(LEASE)
        .where(LEASE.c.pipeline == pipeline)
        .values(epoch=LEASE.c.epoch + 1, owner=owner, heartbeat_at_ms=now_ms)
    )
    taken = connection.execute(statement.returning(LEASE.c.epoch)).scalar_one()
    return Epoch(issued_number(taken, pipeline, "epoch"))


def move_head(
    connection: Connection, pipeline: PipelineName, epoch: Epoch, checkpoint_id: CheckpointId, now_ms: int
) -> bool:
    """Let the pipeline stand on ``checkpoint_id``; False if ``epoch`` is not the newest one."""
    statement = (
        update(LEASE)
        .where(LEASE.c.pipeline == pipeline, LEASE.c.epoch == epoch)
        .values(head=checkpoint_id, heartbeat_at_ms=now_ms)
    )
    return connection.execute(statement).rowcount == 1


def restore_head(
    connection: Connection, pipeline: PipelineName, checkpoint_id: CheckpointId, parallelism: int | None
) -> PipelineHead:
    """Let the pipeline stand on ``checkpoint_id`` in a new generation; ``parallelism`` None keeps what is set."""
    values = {"head": checkpoint_id, "generation": LEASE.c.generation + 1, **released()}
    if parallelism is not None:
        values["parallelism"] = parallelism
    statement = update(LEASE).where(LEASE.c.pipeline == pipeline).values(values)
    head = to_head(connection.execute(statement.returning(LEASE)).one())
    issued_number(head.generation, pipeline, "generation")
    return head


def released() -> dict[str, object]:
    """What makes a pipeline that was cancelled, or failed too often, begin checkpoints again."""
    return {"cancelled_at_ms": None, "failures_from": LEASE.c.next_id}


def cancel(connection: Connection, pipeline: PipelineName, now_ms: int) -> PipelineHead:
    """Let the pipeline begin no checkpoints any more."""
    statement = update(LEASE).where(LEASE.c.pipeline == pipeline).values(cancelled_at_ms=now_ms)
    return to_head(connection.execute(statement.returning(LEASE)).one())


def supersede(
    connection: Connection,
    pipeline: PipelineName,
    failure: CheckpointFailureReason,
    reason: str,
    kinds: tuple[SnapshotKind, ...],
) -> None:
    """Abort what older epochs left pending. Their files stay: only the orphan sweep removes those."""
    values = {"state": after(CheckpointEvent.SUPERSEDED), "failure": failure, "reason": reason}
    _abort(connection, pipeline, values, CHECKPOINT.c.kind.in_(kinds))


def expire(connection: Connection, pipeline: PipelineName, now_ms: int) -> None:
    """Abort what has been pending beyond its deadline, savepoints too: nobody works at it any more."""
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
    """Close the attempts of aborted checkpoints, which frees their files for the orphan sweep, and
    let go of the files of their bases that they had reserved. A pipeline that an aborted savepoint was to stop
    goes on, unless somebody has cancelled it since."""
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
    stopped_by_one = (LEASE.c.pipeline == pipeline) & LEASE.c.cancelled_at_ms.in_(stops)
    connection.execute(update(LEASE).where(stopped_by_one).values(cancelled_at_ms=None))
