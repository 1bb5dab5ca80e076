"""Pipelines that begin no checkpoints: cancelled by a user, failed too often, or with a deleted state."""

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
    """The operations behind ``Catalog.suspension``. They raise the errors of every catalog method, and NotFoundError
    (``no-pipeline``) if the pipeline never began a checkpoint."""

    transaction: Transaction
    clock: Callable[[], int]

    def failures(self, pipeline: PipelineName) -> int:
        """Return how many checkpoints failed in a row: since the newest completed one, a resume or a restore."""
        with self.transaction(read_only=True) as connection:
            _check_exists(connection, pipeline)
            return failures(connection, pipeline)

    def cancel(self, pipeline: PipelineName, owner: str) -> PipelineHead:
        """Cancel the pipeline: it begins no more checkpoints, and the pending one is aborted. Savepoints still work.

        Takes a new epoch. Cancelling again has the same result."""
        now_ms = self.clock()
        with self.transaction("cancel") as connection:
            _check_exists(connection, pipeline)
            leases.lock(connection, pipeline, now_ms)
            leases.take_epoch(connection, pipeline, owner, now_ms)
            failure = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
            reason = f"the pipeline was cancelled by {owner}"
            leases.supersede(connection, pipeline, failure, reason, (SnapshotKind.CHECKPOINT,))
            return leases.cancel(connection, pipeline, now_ms)

    def resume(self, pipeline: PipelineName, owner: str, *, from_nothing: bool = False) -> PipelineHead:
        """Let the pipeline begin checkpoints again, from its present state. Earlier failures no longer count.

        ``from_nothing``: the next run starts with an empty state in a new generation, because the state was deleted. It
        may be repeated until there is a state again. Raises InvalidRequestError: ``state-discarded`` if the state was
        deleted and ``from_nothing`` is False, ``state-kept`` if there is a state and ``from_nothing`` is True."""
        now_ms = self.clock()
        with self.transaction("resume") as connection:
            _check_exists(connection, pipeline)
            head = leases.lock(connection, pipeline, now_ms)
            gone = is_discarded(connection, head)
            if gone and not from_nothing:
                raise discarded(head)
            if from_nothing and not gone and head.head is not None:
                raise InvalidRequestError(
                    f"pipeline {pipeline} has its state: it cannot start from nothing",
                    kind="state-kept",
                    hint=f"statelib pipelines resume {pipeline} goes on from that state",
                )
            leases.take_epoch(connection, pipeline, owner, now_ms)
            empty = {"head": None, "generation": LEASE.c.generation + 1} if gone else {}
            return _change(connection, pipeline, {**leases.released(), **empty})


def _change(connection: Connection, pipeline: PipelineName, values: dict[str, object]) -> PipelineHead:
    statement = update(LEASE).where(LEASE.c.pipeline == pipeline).values(values).returning(LEASE)
    return to_head(connection.execute(statement).one())


def _check_exists(connection: Connection, pipeline: PipelineName) -> None:
    if connection.execute(select(LEASE.c.pipeline).where(LEASE.c.pipeline == pipeline)).first() is None:
        raise NotFoundError(f"the catalog has no pipeline {pipeline}", kind="no-pipeline")
