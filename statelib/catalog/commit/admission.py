"""The rules for whether a checkpoint or savepoint may begin. The number of failures is a query, not a counter."""

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select

from statelib.catalog.tables import queries
from statelib.catalog.tables.schema import CHECKPOINT, LEASE
from statelib.coordinator.checkpoint_lifecycle import COMMITTED
from statelib.errors import ConflictError, InvalidRequestError
from statelib.model.amounts import number_of
from statelib.model.checkpoint import SnapshotKind
from statelib.model.failure import COUNTED, CheckpointFailureReason
from statelib.model.ids import PipelineName
from statelib.model.record import BeginRequest, CheckpointState, PipelineHead

HEAD_MOVED = "head-moved"


def check_request(request: BeginRequest) -> None:
    """Raise InvalidRequestError (``bad-interval``) unless a checkpoint has an interval and a savepoint has none. A
    checkpoint that mends has the interval that it mends."""
    interval = request.mends or request.interval
    if request.kind is SnapshotKind.SAVEPOINT:
        expected, right = "none, a savepoint applies no events", interval is None
    else:
        expected, right = "start before end", interval is not None and interval.start_ms < interval.end_ms
    if not right:
        raise InvalidRequestError(
            f"{request.pipeline}: data interval of a {request.kind.lower()}: expected {expected}, found {interval}",
            kind="bad-interval",
        )


def failures(connection: Connection, pipeline: PipelineName) -> int:
    """Return how many checkpoints failed in a row: since the newest completed one, or since the pipeline was resumed or
    restored."""
    return connection.execute(_FAILED, {"pipeline": pipeline}).scalar_one()


def failed_in_a_row(pipeline: ColumnElement[str]) -> Select[int]:
    """Return the SELECT that counts the failures in a row of ``pipeline``: a parameter, or the column of ``lease`` in a
    query that encloses it."""
    failed, done, lease = CHECKPOINT.alias("failed"), CHECKPOINT.alias("done"), LEASE.alias("seen")
    failures_from = select(lease.c.failures_from).where(lease.c.pipeline == pipeline)
    # With ORDER BY and LIMIT the database stops at the newest row; with MAX it may read all of them.
    completed = (
        select(done.c.checkpoint_id)
        .where(done.c.pipeline == pipeline, done.c.kind == SnapshotKind.CHECKPOINT)
        .where(done.c.state.in_(COMMITTED), done.c.completed_at_ms.is_not(None))
        .order_by(done.c.checkpoint_id.desc())
        .limit(1)
    )
    return (
        select(func.count())
        .select_from(failed)
        .where(
            failed.c.pipeline == pipeline,
            failed.c.kind == SnapshotKind.CHECKPOINT,
            # Aborted ones, and those that the gate put into quarantine, also if they were disposed of since. A pending
            # one may still complete.
            failed.c.state != CheckpointState.PENDING,
            failed.c.failure.in_(COUNTED),
            # "+ 0" keeps SQLite from using this bound in the index: it can use one bound, and the next one is nearer.
            failed.c.checkpoint_id + 0 >= failures_from.correlate(LEASE).scalar_subquery(),
            failed.c.checkpoint_id > func.coalesce(completed.correlate(LEASE).scalar_subquery(), 0),
        )
    )


_FAILED = failed_in_a_row(bindparam("pipeline"))


def admit(connection: Connection, head: PipelineHead, request: BeginRequest) -> None:
    """Raise an error if the requested checkpoint or savepoint may not begin.

    Raises ConflictError (``head-moved``: the head or generation is not the one that the request was decided for).
    Raises InvalidRequestError: ``state-discarded`` (the head's state is deleted), ``pipeline-cancelled`` (for a
    checkpoint, and for a savepoint that stops the pipeline), ``too-many-failures`` (for a checkpoint)."""
    name = head.pipeline
    seen = request.decided_at
    if seen is not None and (seen.head, seen.generation) != (head.head, head.generation):
        raise ConflictError(
            f"{request.kind.lower()} of {name}: expected head {seen.head} in generation {seen.generation}, "
            f"found head {head.head} in generation {head.generation}",
            kind=HEAD_MOVED,
            hint="another run changed the pipeline meanwhile; run it again",
        )
    if is_discarded(connection, head):
        raise discarded(head)
    if head.cancelled and (request.stop or request.kind is SnapshotKind.CHECKPOINT):
        save, resume = f"statelib savepoint create {name} takes a savepoint of it", f"statelib pipelines resume {name}"
        raise InvalidRequestError(
            f"pipeline {name} is cancelled: {CheckpointFailureReason.PERIODIC_SCHEDULER_SHUTDOWN.message}",
            kind="pipeline-cancelled",
            hint=save if request.stop else resume,
        )
    if request.kind is not SnapshotKind.CHECKPOINT:
        return
    failed = failures(connection, name)
    if request.tolerable_failures is not None and failed > request.tolerable_failures:
        raise InvalidRequestError(
            f"the last {number_of(failed, 'checkpoint')} of pipeline {name} failed,"
            f" {request.tolerable_failures} are tolerated",
            kind="too-many-failures",
            hint=f"statelib checkpoints list -p {name} --all shows why; then statelib pipelines resume {name}",
        )


def is_discarded(connection: Connection, head: PipelineHead) -> bool:
    """Return whether retention has deleted the head itself, which it does after the pipeline has ended."""
    if head.head is None:
        return False
    return queries.record(connection, head.pipeline, head.head).state is not CheckpointState.COMPLETED


def discarded(head: PipelineHead) -> InvalidRequestError:
    """Return the error for a pipeline whose head :func:`is_discarded`."""
    return InvalidRequestError(
        f"the state of pipeline {head.pipeline} was discarded when the pipeline ended: checkpoint {head.head} is gone",
        kind="state-discarded",
        hint=f"restore a savepoint, or statelib pipelines resume {head.pipeline} --from-nothing",
    )
