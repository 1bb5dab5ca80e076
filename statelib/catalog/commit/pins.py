"""Protection of checkpoints from deletion: by pins of running restores, and by pending checkpoints built on them."""

from sqlalchemy import Connection, delete, insert, select

from statelib.catalog.tables.row_checks import checked
from statelib.catalog.tables.schema import CHECKPOINT, PIN
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState


def pin(
    connection: Connection, pipeline: PipelineName, checkpoint_id: CheckpointId, holder: str, expires_at_ms: int
) -> None:
    """Pin a checkpoint for ``holder``, or extend the pin."""
    unpin(connection, pipeline, holder, checkpoint_id)
    connection.execute(
        insert(PIN).values(pipeline=pipeline, checkpoint_id=checkpoint_id, holder=holder, expires_at_ms=expires_at_ms)
    )


def unpin(
    connection: Connection, pipeline: PipelineName, holder: str, checkpoint_id: CheckpointId | None = None
) -> None:
    """Remove the pin of ``holder`` on one checkpoint, or all its pins of the pipeline."""
    statement = delete(PIN).where(PIN.c.pipeline == pipeline, PIN.c.holder == holder)
    if checkpoint_id is not None:
        statement = statement.where(PIN.c.checkpoint_id == checkpoint_id)
    connection.execute(statement)


def pinned(connection: Connection, pipeline: PipelineName, now_ms: int) -> frozenset[CheckpointId]:
    """Return the checkpoints with a pin that has not expired."""
    for pin_row in connection.execute(select(PIN).where(PIN.c.pipeline == pipeline)).all():
        checked(PIN, pin_row)  # a pin with a damaged time or id would be ignored by the SQL below
    valid = select(PIN.c.checkpoint_id).where(PIN.c.pipeline == pipeline, PIN.c.expires_at_ms > now_ms)
    return frozenset(CheckpointId(number) for number in connection.execute(valid).scalars())


def in_use(connection: Connection, pipeline: PipelineName, now_ms: int) -> frozenset[CheckpointId]:
    """Return the checkpoints with a pin that has not expired, and the bases of pending checkpoints."""
    bases = select(CHECKPOINT.c.base).where(
        CHECKPOINT.c.pipeline == pipeline,
        CHECKPOINT.c.state == CheckpointState.PENDING,
        CHECKPOINT.c.base.is_not(None),
    )
    numbers = connection.execute(bases).scalars()
    return pinned(connection, pipeline, now_ms) | {CheckpointId(number) for number in numbers}
