"""Pipelines that begin no checkpoints: cancelled by their user, failed too often, or without their state."""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from statelib.catalog.commit import leases
from statelib.catalog.commit.admission import discarded, failures, is_discarded
from statelib.catalog.engine import Transaction
from statelib.catalog.tables.rows import to_head
from statelib.catalog.tables.schema import CHECKPOINT, LEASE
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.model.checkpoint import SnapshotKind
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import PipelineName
from statelib.model.record import PipelineHead

_C = CHECKPOINT.c


@dataclass(frozen=True)
class Suspension:
    """Reached by ``Catalog.suspension``; raises as the catalog does, NotFoundError (``no-pipeline``) for a pipeline
    that never began a checkpoint."""

    transaction: Transaction
    clock: Callable[[], int]

    def failures(self, pipeline: PipelineName) -> int:
        """How many checkpoints failed in a row, as :func:`failures`."""
        with self.transaction(read_only=True) as connection:
            _check_known(connection, pipeline)
            return failures(connection, pipeline)

    def cancel(self, pipeline: PipelineName, owner: str) -> PipelineHead:
        """Begin no checkpoints any more, and abort the pending one. Takes the epoch; savepoints go on.

        Cancelling twice is harmless."""
        now_ms = self.clock()
        with self.transaction("cancel") as connection:
            _check_known(connection, pipeline)
            leases.lock(connection, pipeline, now_ms)
            leases.take_epoch(connection, pipeline, owner, now_ms)
            failure = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
            reason = f"the pipeline was cancelled by {owner}"
            leases.supersede(connection, pipeline, failure, reason, (SnapshotKind.CHECKPOINT,))
            return leases.cancel(connection, pipeline, now_ms)

    def resume(self, pipeline: PipelineName, owner: str, *, from_nothing: bool = False) -> PipelineHead:
        """Begin checkpoints again, on the state there is; earlier failures do not count any more.

        ``from_nothing``: the state was discarded, and the next run starts with an empty one, in a new
        generation. Raises InvalidRequestError (``state-discarded``, ``state-kept``) where the two differ."""
        now_ms = self.clock()
        with self.transaction("resume") as connection:
            _check_known(connection, pipeline)
            head = leases.lock(connection, pipeline, now_ms)
            gone = is_discarded(connection, head)
            if gone and not from_nothing:
                raise discarded(head)
            if from_nothing and not gone:
                raise InvalidRequestError(
                    f"pipeline {pipeline} has its state: it cannot start from nothing",
                    kind="state-kept",
                    hint=f"statelib pipelines resume {pipeline} goes on from there",
                )
            leases.take_epoch(connection, pipeline, owner, now_ms)
            empty = {"head": None, "generation": LEASE.c.generation + 1} if gone else {}
            return _change(connection, pipeline, {**leases.released(), **empty})


def _change(connection: Connection, pipeline: PipelineName, values: dict[str, object]) -> PipelineHead:
    statement = update(LEASE).where(LEASE.c.pipeline == pipeline).values(values).returning(LEASE)
    return to_head(connection.execute(statement).one())


def _check_known(connection: Connection, pipeline: PipelineName) -> None:
    if connection.execute(select(LEASE.c.pipeline).where(LEASE.c.pipeline == pipeline)).first() is None:
        raise NotFoundError(f"the catalog has no pipeline {pipeline}", kind="no-pipeline")
