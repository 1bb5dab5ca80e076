"""SELECT statements on the checkpoint table, and reading one checkpoint, which every part of the catalog does."""

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import Connection, Select, or_, select

from statelib.catalog.tables.rows import to_record
from statelib.catalog.tables.schema import CHECKPOINT
from statelib.coordinator.checkpoint_lifecycle import COMMITTED
from statelib.errors import NotFoundError
from statelib.model.checkpoint import DataInterval, SnapshotKind
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState

_C = CHECKPOINT.c
_CHUNK = 250
"""The largest number of names in one statement: databases limit the number of bound values, and a name may have two."""
_T = TypeVar("_T")


def in_chunks(names: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Yield the names in parts of which each fits into one statement."""
    for start in range(0, len(names), _CHUNK):
        yield names[start : start + _CHUNK]


def one(pipeline: PipelineName, checkpoint_id: CheckpointId) -> Select[tuple[object, ...]]:
    """Return the statement that selects one checkpoint."""
    return select(CHECKPOINT).where(_C.pipeline == pipeline, _C.checkpoint_id == checkpoint_id)


def listing(
    pipeline: PipelineName | None, states: Collection[CheckpointState], limit: int | None
) -> Select[tuple[object, ...]]:
    """Return the statement that selects checkpoints in ``states`` (empty: in any state), the newest first within each
    pipeline."""
    statement = select(CHECKPOINT).order_by(_C.pipeline, _C.checkpoint_id.desc()).limit(limit)
    if pipeline is not None:
        statement = statement.where(_C.pipeline == pipeline)
    if states:
        statement = statement.where(_C.state.in_(sorted(states)))
    return statement


def lineage(pipeline: PipelineName, start: CheckpointId) -> Select[tuple[object, ...]]:
    """Return the statement that selects ``start``, its base, the base's base and so on. It ends at a base that is not
    older than its checkpoint, so that a damaged row cannot make it endless."""
    chain = (
        select(_C.checkpoint_id, _C.base)
        .where(_C.pipeline == pipeline, _C.checkpoint_id == start)
        .cte("lineage", recursive=True)
    )
    older = select(_C.checkpoint_id, _C.base).where(
        _C.pipeline == pipeline, _C.checkpoint_id == chain.c.base, chain.c.base < chain.c.checkpoint_id
    )
    chain = chain.union_all(older)
    return (
        select(CHECKPOINT)
        .join(chain, chain.c.checkpoint_id == _C.checkpoint_id)
        .where(_C.pipeline == pipeline)
        .order_by(_C.checkpoint_id.desc())
    )


def applied(
    pipeline: PipelineName, head: CheckpointId, interval: DataInterval, key: str | None = None
) -> Select[tuple[object, ...]]:
    """Return the statement that selects the checkpoint in the head's history that has the data interval or the
    idempotency key."""
    same_interval = (_C.interval_start_ms == interval.start_ms) & (_C.interval_end_ms == interval.end_ms)
    wanted = same_interval if key is None else or_(same_interval, _C.idempotency_key == key)
    return lineage(pipeline, head).where(_C.state.in_(COMMITTED), wanted).limit(1)


def same_savepoint(pipeline: PipelineName, key: str) -> Select[tuple[object, ...]]:
    """Return the statement that selects the PENDING or COMPLETED savepoint of an earlier request with this key."""
    return (
        select(CHECKPOINT)
        .where(
            _C.pipeline == pipeline,
            _C.idempotency_key == key,
            _C.kind == SnapshotKind.SAVEPOINT,
            _C.state.in_((CheckpointState.PENDING, CheckpointState.COMPLETED)),
        )
        .order_by(_C.checkpoint_id.desc())
        .limit(1)
    )


def record(connection: Connection, pipeline: PipelineName, checkpoint_id: CheckpointId) -> CheckpointRecord:
    """Return one checkpoint. Raises NotFoundError (``no-checkpoint``)."""
    row = connection.execute(one(pipeline, checkpoint_id)).first()
    if row is None:
        raise NotFoundError(
            f"pipeline {pipeline} has no checkpoint {checkpoint_id}",
            kind="no-checkpoint",
            hint="statelib checkpoints list",
        )
    return to_record(row)
