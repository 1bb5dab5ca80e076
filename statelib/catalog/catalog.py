"""The catalog: which checkpoints exist, which one a pipeline stands on, and who may change that.

A checkpoint exists when its row is COMPLETED, and from that transaction on. An epoch is taken by one
statement and checked in every transaction that depends on it; an id is never used twice; no file is ever deleted here.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from sqlalchemy import ColumnElement, Connection, Select, and_, insert, select, update

from statelib.catalog.commit import admission, gate, holdings, leases
from statelib.catalog.commit.cleanup import Cleanup
from statelib.catalog.commit.rebuilding import Rebuilding
from statelib.catalog.commit.suspension import Suspension
from statelib.catalog.engine import file_stamp, open_engine, transaction
from statelib.catalog.migration import check_revision, is_empty, migrate
from statelib.catalog.refusals import described, fenced, same_owner
from statelib.catalog.tables import queries
from statelib.catalog.tables.rows import completed_values, pending_values, to_head, to_record
from statelib.catalog.tables.schema import CHECKPOINT, LEASE
from statelib.catalog.views.browsing import Browsing
from statelib.catalog.views.history import History
from statelib.coordinator.checkpoint_lifecycle import CheckpointEvent, after, before, is_committed
from statelib.errors import ConflictError, InvalidRequestError, RetryableError
from statelib.model.checkpoint import DataInterval, SnapshotKind
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.record import BeginRequest, CheckpointRecord, CheckpointState, CommitFacts, Owner, PipelineHead

Records = list[CheckpointRecord]
Locate = Callable[[CheckpointId], str]
_SUSPEND = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND
_BOTH = (SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT)


class Catalog:
    """The catalog at a SQLAlchemy URL (SQLite file or PostgreSQL). ``clock`` gives epoch milliseconds.

    Cheap to make, connects per call, safe to use from several threads and processes. Every
    method raises RetryableError (``catalog-unavailable``) when the database cannot be reached,
    and InvalidRequestError (``catalog-not-migrated``) when its tables are not there yet.
    """

    def __init__(self, url: str, clock: Callable[[], int]) -> None:
        self._engine = open_engine(url)
        self._clock = clock
        self._checked = False
        self._created: tuple[int, ...] | None = None

    def migrate(self) -> None:
        """Create the tables, or bring them to this version's schema; does nothing when they are."""
        migrate(self._engine)

    def create_if_empty(self) -> None:
        """Create the tables where there are none. Raises, as every method, for those of another version."""
        if self._created == file_stamp(self._engine):
            return
        if is_empty(self._engine):
            self.migrate()
        with self._transaction(read_only=True):
            self._created = file_stamp(self._engine)

    def begin(self, request: BeginRequest, locate: Locate) -> CheckpointRecord:
        """Allocate the checkpoint or savepoint asked for, or return the one that did this work before.

        A checkpoint takes the epoch, and with it the right to move the head; what older epochs
        left pending is aborted. If the head's history has its key or its data interval already,
        that record is returned and nothing changes. A savepoint leaves epoch, head and pending
        checkpoints alone; the same key means the same savepoint as long as it is pending or
        completed. With ``request.stop`` it does both, and the pipeline begins no more checkpoints: all in one
        transaction, so that no interval can come between. If such a savepoint is aborted later, the pipeline goes on.
        ``locate`` names the directory URI of a new id, inside the transaction. What is
        pending beyond its deadline is aborted first. Raises as :func:`admission.admit`.
        """
        admission.check_request(request)
        now_ms = self._clock()
        with self._transaction("expire") as connection:
            leases.lock(connection, request.pipeline, now_ms)
            leases.expire(connection, request.pipeline, now_ms)
        with self._transaction("begin") as connection:
            head = leases.lock(connection, request.pipeline, now_ms)
            done = connection.execute(_same_work(request, head)).first()
            if done is not None:
                return to_record(done)
            admission.admit(connection, head, request)
            takes_over = request.kind is SnapshotKind.CHECKPOINT or request.stop is not None
            if takes_over:
                leases.take_epoch(connection, request.pipeline, request.owner, now_ms)
            taken = leases.take_id(connection, request.pipeline)
            if takes_over:
                reason = f"superseded by {request.kind.lower()} {taken.checkpoint_id} of {request.owner}"
                failure = CheckpointFailureReason.CHECKPOINT_SUBSUMED
                leases.supersede(connection, request.pipeline, failure, reason, (SnapshotKind.CHECKPOINT,))
            if request.stop is not None:
                leases.cancel(connection, request.pipeline, now_ms)
            directory = locate(taken.checkpoint_id)
            values = pending_values(request, taken.head, taken.checkpoint_id, directory, now_ms)
            record = to_record(connection.execute(insert(CHECKPOINT).values(values).returning(CHECKPOINT)).one())
            holdings.reserve(connection, request.pipeline, taken.checkpoint_id, record.base)
            return record

    def applied(self, pipeline: PipelineName, interval: DataInterval) -> CheckpointRecord | None:
        """The checkpoint of the head's history that holds ``interval``; after a restore, intervals
        behind the restored checkpoint are no longer part of it."""
        with self._transaction(read_only=True) as connection:
            head = _head(connection, pipeline)
            if head.head is None:
                return None
            row = connection.execute(queries.applied(pipeline, head.head, interval)).first()
            return None if row is None else to_record(row)

    def record_attempt(
        self, pipeline: PipelineName, checkpoint_id: CheckpointId, attempt: AttemptId, timeout_ms: int | None = None
    ) -> CheckpointRecord:
        """Note that ``attempt`` is about to write files for a pending checkpoint; it has ``timeout_ms`` from now.

        Raises NotFoundError (``no-checkpoint``), ConflictError (``not-pending``, ``attempt-reused``).
        """
        now_ms = self._clock()
        deadline = {} if timeout_ms is None else {"deadline_ms": now_ms + timeout_ms}
        with self._transaction("record attempt") as connection:
            changed = connection.execute(
                update(CHECKPOINT)
                .where(_is(pipeline, checkpoint_id), CHECKPOINT.c.state == CheckpointState.PENDING)
                .values(attempt=attempt, failure=None, reason="", **deadline)
            )
            if changed.rowcount != 1:
                record = queries.record(connection, pipeline, checkpoint_id)
                raise ConflictError(
                    f"checkpoint {pipeline}/{checkpoint_id}: expected it PENDING, it is {described(record)}",
                    kind="not-pending",
                )
            holdings.open_attempt(connection, pipeline, checkpoint_id, attempt, now_ms)
            return queries.record(connection, pipeline, checkpoint_id)

    def commit(
        self, pipeline: PipelineName, checkpoint_id: CheckpointId, epoch: Epoch, facts: CommitFacts
    ) -> CheckpointRecord:
        """The commit point: the checkpoint becomes COMPLETED and, unless a savepoint, the head.

        Committing again with the same attempt returns the record. When the database's answer is
        lost, the record is read back to see whether it happened. Raises ConflictError (``fenced``:
        superseded, aborted or won by another attempt; ``file-changed``), NotFoundError, and
        RetryableError (``commit-unknown``): the same call will settle it.
        """
        try:
            with self._transaction("commit") as connection:
                record = queries.record(connection, pipeline, checkpoint_id)
                return self._commit(connection, record, epoch, facts)
        except (ConflictError, RetryableError) as error:
            return self._settle(pipeline, checkpoint_id, facts.attempt, error)

    def _commit(
        self, connection: Connection, record: CheckpointRecord, epoch: Epoch, facts: CommitFacts
    ) -> CheckpointRecord:
        now_ms = self._clock()
        pipeline, checkpoint_id = record.pipeline, record.checkpoint_id
        event = CheckpointEvent.GATE_PASSED
        moves = record.kind is SnapshotKind.CHECKPOINT
        if moves and not leases.move_head(connection, pipeline, epoch, checkpoint_id, now_ms):
            raise fenced(record, epoch, _head(connection, pipeline).epoch)
        changed = connection.execute(
            update(CHECKPOINT)
            .where(_is(pipeline, checkpoint_id), CHECKPOINT.c.state.in_(before(event)), CHECKPOINT.c.epoch == epoch)
            .values(state=after(event), **completed_values(facts, now_ms))
        )
        if changed.rowcount != 1:
            raise fenced(record, epoch, _head(connection, pipeline).epoch)
        holdings.open_attempt(connection, pipeline, checkpoint_id, facts.attempt, now_ms)
        holdings.close_attempts(connection, pipeline, checkpoint_id, facts.attempt)
        holdings.record_files(connection, pipeline, checkpoint_id, facts.files, record.owner)
        return queries.record(connection, pipeline, checkpoint_id)

    def _settle(
        self,
        pipeline: PipelineName,
        checkpoint_id: CheckpointId,
        attempt: AttemptId,
        error: ConflictError | RetryableError,
    ) -> CheckpointRecord:
        """A commit did not answer with success: what does the database say became of it?"""
        try:
            record = self.get(pipeline, checkpoint_id)
        except RetryableError:
            record = None
        if record is not None and is_committed(record) and record.attempt == attempt:
            return record
        if isinstance(error, ConflictError):
            raise error
        state = "unreadable" if record is None else record.state
        raise RetryableError(
            f"commit of checkpoint {pipeline}/{checkpoint_id} got no answer, its row is {state}: {error.message}",
            kind="commit-unknown",
            hint="repeat the same call; nothing was deleted",
        ) from error

    def abort(
        self,
        pipeline: PipelineName,
        checkpoint_id: CheckpointId,
        reason: str,
        failure: CheckpointFailureReason = CheckpointFailureReason.TASK_FAILURE,
    ) -> CheckpointRecord:
        """Give up a pending checkpoint; one that is not pending is returned as it is. Deletes nothing.

        Where an attempt noted why it failed, that is the reason, unless the checkpoint has expired."""
        event = CheckpointEvent.FAILED
        with self._transaction("abort") as connection:
            noted = queries.record(connection, pipeline, checkpoint_id)
            if noted.failure is not None and failure is not CheckpointFailureReason.CHECKPOINT_EXPIRED:
                failure, reason = noted.failure, f"{reason}: {noted.reason}"
            changed = connection.execute(
                update(CHECKPOINT)
                .where(_is(pipeline, checkpoint_id), CHECKPOINT.c.state.in_(before(event)))
                .values(state=after(event), failure=failure, reason=reason)
            )
            if changed.rowcount:
                leases.abort_attempts(connection, pipeline)
            return queries.record(connection, pipeline, checkpoint_id)

    def note_failure(
        self,
        pipeline: PipelineName,
        checkpoint_id: CheckpointId,
        attempt: AttemptId,
        failure: CheckpointFailureReason,
        reason: str,
    ) -> None:
        """Note why ``attempt`` failed: the checkpoint stays pending for the next one, and if there is none,
        :meth:`abort` keeps that. Changes nothing if another attempt has begun, or it has ended."""
        where = and_(_is(pipeline, checkpoint_id), CHECKPOINT.c.state == CheckpointState.PENDING)
        with self._transaction("note failure") as connection:
            connection.execute(
                update(CHECKPOINT).where(where, CHECKPOINT.c.attempt == attempt).values(failure=failure, reason=reason)
            )

    def restore(
        self,
        pipeline: PipelineName,
        checkpoint_id: CheckpointId,
        parallelism: int | None,
        owner: str,
        *,
        claim: bool = False,
    ) -> PipelineHead:
        """Let the pipeline stand on a COMPLETED checkpoint or savepoint, in a new generation.

        Takes the epoch and aborts all that is pending. ``parallelism`` None keeps what is set.
        ``claim``: from now on the system owns the checkpoint's files, and may delete them in time.
        Raises NotFoundError; InvalidRequestError (``not-completed``, ``bad-parallelism``).
        """
        if parallelism is not None and parallelism < 1:
            raise InvalidRequestError(f"parallelism {parallelism}: expected 1 or more", kind="bad-parallelism")
        now_ms = self._clock()
        with self._transaction("restore") as connection:
            leases.lock(connection, pipeline, now_ms)
            record = queries.record(connection, pipeline, checkpoint_id)
            if record.state is not CheckpointState.COMPLETED:
                raise InvalidRequestError(
                    f"checkpoint {pipeline}/{checkpoint_id} is {described(record)}: expected a COMPLETED one",
                    kind="not-completed",
                )
            leases.take_epoch(connection, pipeline, owner, now_ms)
            reason = f"superseded by the restore of {checkpoint_id} by {owner}"
            leases.supersede(connection, pipeline, _SUSPEND, reason, _BOTH)
            if claim:
                holdings.claim(connection, pipeline, checkpoint_id)
            return leases.restore_head(connection, pipeline, checkpoint_id, parallelism)

    def import_savepoint(
        self,
        pipeline: PipelineName,
        *,
        directory: str,
        strategy: str,
        parallelism: int,
        interval: DataInterval | None,
        facts: CommitFacts,
        owner: Owner = Owner.USER,
        note: str = "",
    ) -> CheckpointRecord:
        """Enter a snapshot that lies on storage already, as a COMPLETED savepoint without a base.

        ``interval`` is the last one applied to it, None if unknown. The same directory imported
        again is the same record. Raises ConflictError (``already-imported``) if that record has
        another owner, ``file-changed`` if a file of it is known with other bytes.
        """
        request = BeginRequest(
            pipeline, SnapshotKind.SAVEPOINT, interval, strategy, parallelism, owner, f"import:{directory}", note=note
        )
        now_ms = self._clock()
        with self._transaction("import") as connection:
            head = leases.lock(connection, pipeline, now_ms)
            known = connection.execute(_same_work(request, head)).first()
            if known is not None:
                return same_owner(to_record(known), owner)
            taken = leases.take_id(connection, pipeline)
            values = {
                **pending_values(request, taken.head, taken.checkpoint_id, directory, now_ms),
                **completed_values(facts, now_ms),
                "state": CheckpointState.COMPLETED,
                "owner": owner,
                "base": None,
                "begun_by": "",
            }
            connection.execute(insert(CHECKPOINT).values(values))
            holdings.record_files(connection, pipeline, taken.checkpoint_id, facts.files, owner)
            return queries.record(connection, pipeline, taken.checkpoint_id)

    def get(self, pipeline: PipelineName, checkpoint_id: CheckpointId) -> CheckpointRecord:
        """One checkpoint; NotFoundError (``no-checkpoint``)."""
        with self._transaction(read_only=True) as connection:
            return queries.record(connection, pipeline, checkpoint_id)

    def list(
        self,
        pipeline: PipelineName | None = None,
        states: Collection[CheckpointState] = (),
        limit: int | None = None,
    ) -> Records:
        """Checkpoints, newest first within a pipeline; of all pipelines, and in all states, by default."""
        return self._records(queries.listing(pipeline, states, limit))

    def lineage(self, pipeline: PipelineName, checkpoint_id: CheckpointId) -> Records:
        """From ``checkpoint_id`` back to the first one of its history; NotFoundError (``no-checkpoint``)."""
        records = self._records(queries.lineage(pipeline, checkpoint_id))
        return records or [self.get(pipeline, checkpoint_id)]

    def pipelines(self) -> tuple[PipelineName, ...]:
        """The pipelines that ever began a checkpoint, in order of their names."""
        with self._transaction(read_only=True) as connection:
            names = connection.execute(select(LEASE.c.pipeline).order_by(LEASE.c.pipeline)).scalars()
            return tuple(PipelineName(str(name)) for name in names)

    def head(self, pipeline: PipelineName) -> PipelineHead:
        """Where a pipeline stands; epoch and generation 0 and no head if it never began a checkpoint."""
        with self._transaction(read_only=True) as connection:
            return _head(connection, pipeline)

    def _records(self, statement: Select[tuple[object, ...]]) -> Records:
        with self._transaction(read_only=True) as connection:
            return [to_record(row) for row in connection.execute(statement).all()]

    @property
    def history(self) -> History:
        """What SQL and BI tools see of it."""
        return History(self._transaction)

    @property
    def suspension(self) -> Suspension:
        """Cancelling and resuming pipelines, and how often they failed."""
        return Suspension(self._transaction, self._clock)

    @property
    def gate(self) -> gate.Gate:
        """What the quality gate said, and what it set aside."""
        return gate.Gate(self._transaction, self._clock)

    @property
    def browsing(self) -> Browsing:
        """The history and the storage as people look at them."""
        return Browsing(self._transaction, self._clock)

    @property
    def cleanup(self) -> Cleanup:
        """What retention, gc, the orphan sweep and running restores ask of the catalog."""
        return Cleanup(self._transaction, self._clock)

    @property
    def rebuilding(self) -> Rebuilding:
        """Entering what lies on storage into a catalog that does not know it."""
        return Rebuilding(self._transaction, self._clock)

    @contextmanager
    def _transaction(self, writes: str = "", *, read_only: bool = False) -> Iterator[Connection]:
        with transaction(self._engine, writes, read_only=read_only) as connection:
            # A server's tables stay what they were found to be; a file may be replaced while this process lives.
            if not self._checked or connection.dialect.name == "sqlite":
                check_revision(connection)
                self._checked = True
            yield connection


def _same_work(request: BeginRequest, head: PipelineHead) -> Select[tuple[object, ...]]:
    if request.kind is SnapshotKind.SAVEPOINT or request.interval is None:
        return queries.same_savepoint(request.pipeline, request.key)
    # A pipeline without a head has no history: no checkpoint has the id 0.
    start = CheckpointId(0) if head.head is None else head.head
    return queries.applied(request.pipeline, start, request.interval, request.key)


def _is(pipeline: PipelineName, checkpoint_id: CheckpointId) -> ColumnElement[bool]:
    return and_(CHECKPOINT.c.pipeline == pipeline, CHECKPOINT.c.checkpoint_id == checkpoint_id)


def _head(connection: Connection, pipeline: PipelineName) -> PipelineHead:
    row = connection.execute(select(LEASE).where(LEASE.c.pipeline == pipeline)).first()
    return PipelineHead(pipeline, Epoch(0), 0, None, None) if row is None else to_head(row)
