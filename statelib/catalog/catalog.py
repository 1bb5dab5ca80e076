"""The catalog: which checkpoints exist, which checkpoint is the head of a pipeline, and who may change that.

A checkpoint exists from the transaction on that makes its row COMPLETED. One statement takes an epoch, and every
transaction that depends on the epoch checks it. An id is never used twice. The catalog never deletes a file.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from sqlalchemy import ColumnElement, Connection, Select, and_, insert, select, update

from statelib.catalog.commit import admission, gate, holdings, leases, restoring
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
from statelib.errors import ConflictError, RetryableError
from statelib.model.checkpoint import DataInterval, SnapshotKind
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.record import BeginRequest, CheckpointRecord, CheckpointState, CommitFacts, Owner, PipelineHead

Records = list[CheckpointRecord]
Locate = Callable[[CheckpointId], str]


class Catalog:
    """The catalog at a SQLAlchemy URL (SQLite file or PostgreSQL). ``clock`` returns epoch milliseconds.

    An instance is cheap to make, connects per call, and is safe to use from several threads and processes. Every
    method raises RetryableError (``catalog-unavailable``) when the database cannot be reached,
    and InvalidRequestError (``catalog-not-migrated``) when the tables do not exist yet.
    """

    def __init__(self, url: str, clock: Callable[[], int]) -> None:
        self._engine = open_engine(url)
        self._clock = clock
        self._checked = False
        self._created: tuple[int, ...] | None = None

    def migrate(self) -> None:
        """Create the tables, or upgrade them to this version's schema. Do nothing if they have that schema already."""
        migrate(self._engine)

    def create_if_empty(self) -> None:
        """Create the tables if there are none. Raises the errors of every method if they have another schema."""
        if self._created == file_stamp(self._engine):
            return
        if is_empty(self._engine):
            self.migrate()
        with self._transaction(read_only=True):
            self._created = file_stamp(self._engine)

    def begin(self, request: BeginRequest, locate: Locate) -> CheckpointRecord:
        """Create the requested checkpoint or savepoint as PENDING, or return the record that did this work before.

        A checkpoint takes a new epoch, and with it the right to move the head. Pending checkpoints of older epochs
        are aborted. If the head's history has the request's key or data interval already,
        that record is returned and nothing changes. A savepoint leaves epoch, head and pending
        checkpoints alone; a second request with its key returns the same savepoint while it is PENDING or
        COMPLETED. A savepoint with ``request.stop`` also takes the epoch and stops the pipeline, in the same
        transaction, so that no interval can come between. If it is aborted later, the pipeline goes on.
        ``locate`` returns the directory URI of a new id; it is called inside the transaction. Checkpoints that are
        pending beyond their deadline are aborted first. Raises the errors of :func:`admission.admit`.
        """
        admission.check_request(request)
        now_ms = self._clock()
        with self._transaction("expire") as connection:
            leases.lock(connection, request.pipeline, now_ms)
            leases.expire(connection, request.pipeline, now_ms)
        with self._transaction("begin") as connection:
            head = leases.lock(connection, request.pipeline, now_ms)
            earlier_row = connection.execute(_same_work(request, head)).first()
            if earlier_row is not None:
                return to_record(earlier_row)
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
        """Return the checkpoint in the head's history that applied ``interval``, or None. After a restore, intervals
        after the restored checkpoint are no longer in that history."""
        with self._transaction(read_only=True) as connection:
            head = _head(connection, pipeline)
            if head.head is None:
                return None
            row = connection.execute(queries.applied(pipeline, head.head, interval)).first()
            return None if row is None else to_record(row)

    def record_attempt(
        self, pipeline: PipelineName, checkpoint_id: CheckpointId, attempt: AttemptId, timeout_ms: int | None = None
    ) -> CheckpointRecord:
        """Record that ``attempt`` is about to write files for a pending checkpoint, and move the checkpoint's deadline
        to ``timeout_ms`` from now (None: the deadline stays).

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
                    f"checkpoint {pipeline}/{checkpoint_id}: expected PENDING, found {described(record)}",
                    kind="not-pending",
                )
            holdings.open_attempt(connection, pipeline, checkpoint_id, attempt, now_ms)
            return queries.record(connection, pipeline, checkpoint_id)

    def commit(
        self, pipeline: PipelineName, checkpoint_id: CheckpointId, epoch: Epoch, facts: CommitFacts
    ) -> CheckpointRecord:
        """Complete the checkpoint, and make it the head unless it is a savepoint. This is the commit point.

        Committing again with the same attempt returns the record. When the database's answer is
        lost, the record is read again to see whether the commit happened. Raises ConflictError (``fenced``:
        superseded, aborted, or completed by another attempt; ``file-changed``), NotFoundError, and
        RetryableError (``commit-unknown``): repeat the same call to learn the result.
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
        """Return the record if the commit happened in spite of ``error``; otherwise raise the error."""
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
        """Abort a pending checkpoint. A checkpoint that is not pending is returned unchanged. Deletes no files.

        If an attempt recorded why it failed, that is part of the reason, unless the checkpoint has expired."""
        event = CheckpointEvent.FAILED
        with self._transaction("abort") as connection:
            noted = queries.record(connection, pipeline, checkpoint_id)
            if noted.failure is not None and failure is not CheckpointFailureReason.CHECKPOINT_EXPIRED:
                failure = noted.failure
                reason = noted.reason if f": {noted.reason}".endswith(f": {reason}") else f"{reason}: {noted.reason}"
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
        """Record why ``attempt`` failed. The checkpoint stays PENDING for the next attempt; :meth:`abort` uses the
        reason if there is none. Changes nothing if another attempt has begun or the checkpoint is not PENDING."""
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
        instead_of: CheckpointId | None = None,
        key: str = "",
    ) -> PipelineHead:
        """Make a COMPLETED checkpoint or savepoint the pipeline's head, in a new generation, and return the head.

        Takes a new epoch and aborts what is pending. ``parallelism`` None keeps the present value. ``claim``: the
        system owns the files from now on, and retention may delete them. ``instead_of``: the only head to replace, or
        ``NO_HEAD``. ``key``: if a restore with this key was done before, nothing changes, whatever came after it.
        Raises NotFoundError, InvalidRequestError (``not-completed``), ConflictError (``plan-changed``).
        """
        leases.check_parallelism(parallelism)
        wish = restoring.Restore(checkpoint_id, parallelism, owner, claim, instead_of, key)
        with self._transaction("restore") as connection:
            return restoring.restore(connection, pipeline, wish, self._clock())

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
        """Enter a snapshot that exists on storage already, as a COMPLETED savepoint without a base.

        ``interval`` is the last interval that was applied to it, None if unknown. Importing the same snapshot from the
        same directory again returns the same record. Raises ConflictError: ``already-imported`` if that record has
        another owner, ``file-changed`` if the catalog has one of its files with another size or checksum.
        """
        key = f"import:{directory}:{facts.attempt}"
        request = BeginRequest(pipeline, SnapshotKind.SAVEPOINT, interval, strategy, parallelism, owner, key, note=note)
        now_ms = self._clock()
        with self._transaction("import") as connection:
            head = leases.lock(connection, pipeline, now_ms)
            earlier_row = connection.execute(_same_work(request, head)).first()
            if earlier_row is not None:
                return same_owner(to_record(earlier_row), owner)
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
        """Return one checkpoint. Raises NotFoundError (``no-checkpoint``)."""
        with self._transaction(read_only=True) as connection:
            return queries.record(connection, pipeline, checkpoint_id)

    def list(
        self,
        pipeline: PipelineName | None = None,
        states: Collection[CheckpointState] = (),
        limit: int | None = None,
    ) -> Records:
        """Return checkpoints, the newest first within each pipeline. The default is all pipelines and all states."""
        return self._records(queries.listing(pipeline, states, limit))

    def lineage(self, pipeline: PipelineName, checkpoint_id: CheckpointId) -> Records:
        """Return ``checkpoint_id``, its base, the base's base, and so on. Raises NotFoundError (``no-checkpoint``)."""
        records = self._records(queries.lineage(pipeline, checkpoint_id))
        return records or [self.get(pipeline, checkpoint_id)]

    def pipelines(self) -> tuple[PipelineName, ...]:
        """Return the pipelines that ever began a checkpoint, sorted by name."""
        with self._transaction(read_only=True) as connection:
            names = connection.execute(select(LEASE.c.pipeline).order_by(LEASE.c.pipeline)).scalars()
            return tuple(PipelineName(str(name)) for name in names)

    def head(self, pipeline: PipelineName) -> PipelineHead:
        """Return the head, epoch and generation of a pipeline: None, 0 and 0 if it never began a checkpoint."""
        with self._transaction(read_only=True) as connection:
            return _head(connection, pipeline)

    def _records(self, statement: Select[tuple[object, ...]]) -> Records:
        with self._transaction(read_only=True) as connection:
            return [to_record(row) for row in connection.execute(statement).all()]

    @property
    def history(self) -> History:
        """The catalog's SQL views, as BI tools read them."""
        return History(self._transaction)

    @property
    def suspension(self) -> Suspension:
        """Cancelling and resuming pipelines, and counting their failures."""
        return Suspension(self._transaction, self._clock)

    @property
    def gate(self) -> gate.Gate:
        """Results of the quality gate, and checkpoints in quarantine."""
        return gate.Gate(self._transaction, self._clock)

    @property
    def browsing(self) -> Browsing:
        """History and storage use, for the command line and the State page."""
        return Browsing(self._transaction, self._clock)

    @property
    def cleanup(self) -> Cleanup:
        """The catalog operations of retention, gc, the orphan sweep and running restores."""
        return Cleanup(self._transaction, self._clock)

    @property
    def rebuilding(self) -> Rebuilding:
        """Entering snapshots on storage into a catalog that has lost them."""
        return Rebuilding(self._transaction, self._clock)

    @contextmanager
    def _transaction(self, writes: str = "", *, read_only: bool = False) -> Iterator[Connection]:
        with transaction(self._engine, writes, read_only=read_only) as connection:
            # A server's schema is checked once. A SQLite file may be replaced while this process runs.
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
