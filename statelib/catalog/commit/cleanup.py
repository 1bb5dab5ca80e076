"""The catalog's part of deleting checkpoints: subsume, condemn, confirm; and pins, which prevent all three.

Every change locks the pipeline's lease row first, as ``begin`` and ``commit`` do, so that a
decision about a checkpoint is still right when it is written. Nothing here touches storage.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, func, insert, or_, select, update

from statelib.catalog.commit import leases, pins
from statelib.catalog.commit.admission import failures
from statelib.catalog.commit.holdings import claim, living
from statelib.catalog.engine import Transaction
from statelib.catalog.tables import queries, storage_facts
from statelib.catalog.tables.row_checks import checked
from statelib.catalog.tables.rows import to_head, to_record
from statelib.catalog.tables.schema import CHECKPOINT, FILE, GC_LOG, LEASE, REF
from statelib.catalog.tables.storage_facts import FileFacts
from statelib.coordinator.checkpoint_lifecycle import CheckpointEvent, after, before
from statelib.coordinator.discard import CondemnedFile
from statelib.coordinator.orphans import CatalogRecords
from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.model.amounts import number_of
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState, Owner, PipelineHead

_GONE = (CheckpointState.DELETING, CheckpointState.DELETED)


@dataclass(frozen=True)
class Situation:
    """Everything that retention needs for its decision about one pipeline, read in one transaction. ``next_id``: the
    first id that was never issued. ``pinned``: the checkpoints that a restore or a publisher reads. ``failures``:
    number of checkpoints that failed in a row."""

    head: PipelineHead
    next_id: int
    records: tuple[CheckpointRecord, ...]
    pinned: frozenset[CheckpointId]
    failures: int = 0

    @property
    def in_use(self) -> frozenset[CheckpointId]:
        """The pinned checkpoints and the bases of pending ones."""
        return self.pinned | _bases(self._pending)

    @property
    def in_use_after_cancellation(self) -> frozenset[CheckpointId]:
        """The checkpoints in use once the pipeline is cancelled, which aborts its pending checkpoint only."""
        return self.pinned | _bases(r for r in self._pending if r.kind is SnapshotKind.SAVEPOINT)

    @property
    def aborted_by_cancellation(self) -> tuple[CheckpointId, ...]:
        """The pending checkpoint, if there is one."""
        return tuple(r.checkpoint_id for r in self._pending if r.kind is SnapshotKind.CHECKPOINT)

    @property
    def _pending(self) -> Iterator[CheckpointRecord]:
        return (record for record in self.records if record.state is CheckpointState.PENDING)


def _bases(records: Iterable[CheckpointRecord]) -> frozenset[CheckpointId]:
    return frozenset(record.base for record in records if record.base is not None)


@dataclass(frozen=True)
class Doomed:
    """DELETING checkpoints and CONDEMNED files, which gc removes next. ``referenced``: URIs of the pipeline's files
    that a checkpoint refers to; no CONDEMNED file is among them."""

    checkpoints: tuple[CheckpointRecord, ...]
    files: tuple[CondemnedFile, ...]
    referenced: frozenset[str]


@dataclass(frozen=True)
class Cleanup:
    """The operations behind ``Catalog.cleanup``. They raise the errors of every catalog method."""

    transaction: Transaction
    clock: Callable[[], int]

    def situation(self, pipeline: PipelineName) -> Situation:
        """Return the facts for a decision of retention. Raises NotFoundError (``no-pipeline``) if the pipeline never
        began a checkpoint."""
        with self.transaction(read_only=True) as connection:
            row = connection.execute(select(LEASE).where(LEASE.c.pipeline == pipeline)).first()
            if row is None:
                raise NotFoundError(f"the catalog has no pipeline {pipeline}", kind="no-pipeline")
            records = [to_record(r) for r in connection.execute(queries.listing(pipeline, (), None)).all()]
            pinned = pins.pinned(connection, pipeline, self.clock())
            failed = failures(connection, pipeline)
            return Situation(to_head(row), row._mapping[LEASE.c.next_id], tuple(records), pinned, failed)

    def subsume(
        self, pipeline: PipelineName, chosen: Collection[CheckpointId], epoch: Epoch, *, terminated: bool = False
    ) -> None:
        """Mark COMPLETED and QUARANTINED checkpoints of the system as DELETING, all or none of them.
        If the pipeline is ``terminated``, the head may be among them: no checkpoint begins on it any more.

        Raises ConflictError: ``fenced`` (another process took a newer epoch than ``epoch``),
        ``in-use`` (one is now the head, a base or pinned, or is deleted already, or belongs to a user).
        """
        with self.transaction("subsume") as connection:
            head = leases.lock(connection, pipeline, self.clock())
            if head.epoch != epoch:
                raise ConflictError(
                    f"retention of {pipeline}: expected epoch {epoch}, found {head.epoch}",
                    kind="fenced",
                    hint="run it again",
                )
            self._check_free(connection, replace(head, head=None) if terminated else head, chosen)
            changed = _subsume(connection, pipeline, chosen, CHECKPOINT.c.owner == Owner.SYSTEM)
            if changed != len(set(chosen)):
                raise ConflictError(
                    f"retention of {pipeline}: expected {number_of(len(set(chosen)), 'checkpoint')} that the system "
                    f"owns and that are not deleted, found {changed}",
                    kind="in-use",
                    hint="run it again",
                )

    def dispose(
        self, pipeline: PipelineName, checkpoint_id: CheckpointId, *, dry_run: bool = False
    ) -> CheckpointRecord:
        """Mark a COMPLETED savepoint or a QUARANTINED checkpoint as DELETING, whoever owns it. Return its record.

        A second call changes nothing. ``dry_run``: check only.

        Raises NotFoundError; InvalidRequestError (``not-a-savepoint``, ``not-completed``);
        ConflictError (``in-use``) for the head, a base of a pending checkpoint, or a pinned one.
        """
        with self.transaction("dispose") as connection:
            head = leases.lock(connection, pipeline, self.clock())
            record = queries.record(connection, pipeline, checkpoint_id)
            if record.state in _GONE and (record.kind is SnapshotKind.SAVEPOINT or record.completed_at_ms is None):
                return record
            _check_disposable(record)
            self._check_free(connection, head, [checkpoint_id])
            if dry_run:
                return record
            claim(connection, pipeline, checkpoint_id)
            _subsume(connection, pipeline, [checkpoint_id], CHECKPOINT.c.state == record.state)
            return queries.record(connection, pipeline, checkpoint_id)

    def condemn(
        self, pipeline: PipelineName, run_id: str, ours: Callable[[CondemnedFile], bool] = lambda _file: True
    ) -> int:
        """Run the first phase of gc, and return the number of files that it condemned.

        The references of DELETING checkpoints are deleted. Files of the system without a reference become CONDEMNED,
        which is final, except those for which ``ours`` returns False."""
        now_ms = self.clock()
        with self.transaction("condemn") as connection:
            leases.lock(connection, pipeline, now_ms)
            connection.execute(
                REF.delete().where(REF.c.pipeline == pipeline, REF.c.checkpoint_id.in_(_deleting(pipeline)))
            )
            unneeded = and_(
                FILE.c.owner == Owner.SYSTEM, FILE.c.state == "LIVE", ~exists().where(REF.c.file_id == FILE.c.file_id)
            )
            chosen = [file.uri for file in _files(connection, pipeline, unneeded) if ours(file)]
            condemned: list[str] = []
            for some in queries.in_chunks(chosen):
                named = FILE.c.file_id.in_(some)
                changed = update(FILE).where(FILE.c.pipeline == pipeline, unneeded, named).values(state="CONDEMNED")
                condemned += connection.execute(changed.returning(FILE.c.file_id)).scalars()
            return _log(connection, (pipeline, run_id, "CONDEMNED", now_ms), condemned)

    def preview(self, pipeline: PipelineName, also: Collection[CheckpointId] = ()) -> Doomed:
        """Return what gc would remove now if the checkpoints ``also`` were DELETING too, and pending ones among them
        aborted. Changes nothing."""
        others = REF.alias()
        going = others.c.checkpoint_id.in_(_deleting(pipeline)) | others.c.checkpoint_id.in_(also)
        unneeded = and_(
            or_(FILE.c.owner == Owner.SYSTEM, FILE.c.created_by.in_(also)),
            FILE.c.state == "LIVE",
            ~exists().where(others.c.file_id == FILE.c.file_id, ~and_(others.c.pipeline == pipeline, going)),
        )
        with self.transaction(read_only=True) as connection:
            records = [to_record(r) for r in connection.execute(queries.listing(pipeline, (), None)).all()]
            stored = (r for r in records if r.state is not CheckpointState.PENDING)
            chosen = [r for r in stored if r.state is CheckpointState.DELETING or r.checkpoint_id in also]
            files = _files(connection, pipeline, unneeded | (FILE.c.state == "CONDEMNED"))
            return Doomed(tuple(replace(r, state=CheckpointState.DELETING) for r in chosen), files, frozenset())

    def doomed(self, pipeline: PipelineName) -> Doomed:
        """Return what the second phase of gc has to remove, including the leftovers of a run that crashed.

        A checkpoint that became DELETING after the first phase still has its references, and is left for the next run:
        if it became DELETED now, its files would never be condemned."""
        with self.transaction(read_only=True) as connection:
            # .all() reads to the end: SQLite keeps its lock while a query is open, and after an error until the query
            # object is garbage-collected.
            going = connection.execute(queries.listing(pipeline, (CheckpointState.DELETING,), None))
            records = [to_record(r) for r in going.all()]
            holding = set(connection.execute(select(REF.c.checkpoint_id).where(REF.c.pipeline == pipeline)).scalars())
            chosen = (r for r in records if r.checkpoint_id not in holding)
            files = _files(connection, pipeline, FILE.c.state == "CONDEMNED")
            return Doomed(tuple(chosen), files, _referenced(connection, pipeline))

    def referenced(self, pipeline: PipelineName) -> frozenset[str]:
        """Return the URIs of the pipeline's files that any checkpoint refers to, pending ones included."""
        with self.transaction(read_only=True) as connection:
            return _referenced(connection, pipeline)

    def metadata_bytes(self, pipeline: PipelineName) -> dict[CheckpointId, int]:
        """Return the size of ``_metadata`` per checkpoint that has been registered or set aside."""
        has_metadata = CHECKPOINT.c.metadata_size_bytes.is_not(None)
        chosen = select(CHECKPOINT.c.checkpoint_id, CHECKPOINT.c.metadata_size_bytes)
        with self.transaction(read_only=True) as connection:
            rows = connection.execute(chosen.where(CHECKPOINT.c.pipeline == pipeline, has_metadata)).all()
            return {CheckpointId(number): size_bytes for number, size_bytes in rows}

    def is_shared(self, record: CheckpointRecord) -> bool:
        """Return whether a checkpoint that is not being deleted has its snapshot in the directory of ``record``, which
        is DELETING. There are two rows for one directory if another pipeline has restored the snapshot by its path."""
        with self.transaction(read_only=True) as connection:
            return connection.execute(living(record.directory)).first() is not None

    def living_in(self, directory: str) -> list[tuple[PipelineName, CheckpointId]]:
        """Return pipeline and id of the PENDING, COMPLETED and QUARANTINED checkpoints and savepoints in a directory,
        of any pipeline."""
        with self.transaction(read_only=True) as connection:
            rows = connection.execute(living(directory)).all()
            return [(PipelineName(pipeline), CheckpointId(number)) for pipeline, number in rows]

    def of_attempt(self, attempt: AttemptId) -> list[CheckpointRecord]:
        """Return the checkpoints and savepoints whose snapshot an attempt wrote, of any pipeline. There are several if
        the snapshot was imported."""
        with self.transaction(read_only=True) as connection:
            rows = connection.execute(select(CHECKPOINT).where(CHECKPOINT.c.attempt == attempt))
            return [to_record(row) for row in rows.all()]

    def twins(self) -> list[CheckpointRecord]:
        """Return the checkpoints and savepoints whose attempt another one has too, of any pipeline. ABORTED and DELETED
        ones are omitted."""
        living = CHECKPOINT.c.state.not_in((CheckpointState.ABORTED, CheckpointState.DELETED))
        several = select(CHECKPOINT.c.attempt).where(living).group_by(CHECKPOINT.c.attempt).having(func.count() > 1)
        with self.transaction(read_only=True) as connection:
            rows = connection.execute(select(CHECKPOINT).where(living, CHECKPOINT.c.attempt.in_(several)))
            return [to_record(row) for row in rows.all()]

    def confirm_files(self, pipeline: PipelineName, run_id: str, uris: Sequence[str]) -> None:
        """Mark CONDEMNED files as DELETED. They must be deleted from storage already."""
        now_ms = self.clock()
        with self.transaction("confirm files") as connection:
            for some in queries.in_chunks(uris):
                gone = connection.execute(
                    update(FILE)
                    .where(FILE.c.file_id.in_(some), FILE.c.state == "CONDEMNED")
                    .values(state="DELETED")
                    .returning(FILE.c.file_id)
                ).scalars()
                _log(connection, (pipeline, run_id, "DELETED", now_ms), list(gone))

    def confirm_checkpoints(self, pipeline: PipelineName, numbers: Sequence[CheckpointId]) -> None:
        """Mark DELETING checkpoints as DELETED. Their ``_metadata``, and the files that only they referred to, must be
        deleted from storage already."""
        event = CheckpointEvent.DISCARDED
        with self.transaction("confirm checkpoints") as connection:
            leases.lock(connection, pipeline, self.clock())
            for some in queries.in_chunks(numbers):
                connection.execute(
                    update(CHECKPOINT)
                    .where(
                        CHECKPOINT.c.pipeline == pipeline,
                        CHECKPOINT.c.checkpoint_id.in_(some),
                        CHECKPOINT.c.state.in_(before(event)),
                    )
                    .values(state=after(event))
                )

    def records(self, pipeline: PipelineName) -> CatalogRecords:
        """Return the catalog's facts for the orphan sweep. Call this only after storage was listed, so that a file
        which is registered meanwhile is not taken for an orphan."""
        with self.transaction(read_only=True) as connection:
            return storage_facts.catalog_records(connection, pipeline)

    def foreign_holders(self, pipeline: PipelineName) -> list[tuple[PipelineName, CheckpointId, Owner]]:
        """Return the stored checkpoints and savepoints of other pipelines that refer to files of this one."""
        with self.transaction(read_only=True) as connection:
            return storage_facts.foreign_holders(connection, pipeline)

    def file(self, uri: str) -> FileFacts | None:
        """Return the catalog's row of a file and the checkpoints that refer to it, None if it was never recorded."""
        with self.transaction(read_only=True) as connection:
            return storage_facts.file_facts(connection, uri)

    def pin(self, pipeline: PipelineName, checkpoint_id: CheckpointId, holder: str, duration_ms: int) -> None:
        """Protect a COMPLETED checkpoint from deletion while ``holder`` reads it, at most for ``duration_ms``.

        Raises NotFoundError; InvalidRequestError (``not-completed``)."""
        now_ms = self.clock()
        with self.transaction("pin") as connection:
            leases.lock(connection, pipeline, now_ms)
            record = queries.record(connection, pipeline, checkpoint_id)
            if record.state is not CheckpointState.COMPLETED:
                raise InvalidRequestError(
                    f"checkpoint {pipeline}/{checkpoint_id} is {record.state}: only a COMPLETED one can be pinned",
                    kind="not-completed",
                )
            pins.pin(connection, pipeline, checkpoint_id, holder, now_ms + duration_ms)

    def unpin(self, pipeline: PipelineName, holder: str) -> None:
        """Remove all pins of ``holder``. It may have none."""
        with self.transaction("unpin") as connection:
            pins.unpin(connection, pipeline, holder)

    def _check_free(self, connection: Connection, head: PipelineHead, chosen: Collection[CheckpointId]) -> None:
        used = pins.in_use(connection, head.pipeline, self.clock())
        held = sorted(number for number in set(chosen) if number in used or number == head.head)
        if held:
            raise ConflictError(
                f"{head.pipeline}/{held[0]} is in use: it is the head, the base of a pending checkpoint, "
                "or a restore is reading it",
                kind="in-use",
                hint="wait until the run or restore is over; the head can be deleted once a newer checkpoint is "
                "registered",
            )


def _subsume(
    connection: Connection, pipeline: PipelineName, chosen: Collection[CheckpointId], only: ColumnElement[bool]
) -> int:
    event, numbers, changed = CheckpointEvent.SUBSUMED, sorted(set(chosen)), 0
    for some in queries.in_chunks(numbers):
        changed += connection.execute(
            update(CHECKPOINT)
            .where(
                CHECKPOINT.c.pipeline == pipeline,
                CHECKPOINT.c.checkpoint_id.in_(some),
                CHECKPOINT.c.state.in_(before(event)),
                only,
            )
            .values(state=after(event))
        ).rowcount
    return changed


def _deleting(pipeline: PipelineName) -> Select[tuple[int]]:
    return select(CHECKPOINT.c.checkpoint_id).where(
        CHECKPOINT.c.pipeline == pipeline, CHECKPOINT.c.state == CheckpointState.DELETING
    )


def _referenced(connection: Connection, pipeline: PipelineName) -> frozenset[str]:
    statement = select(REF.c.file_id).join(FILE, FILE.c.file_id == REF.c.file_id).where(FILE.c.pipeline == pipeline)
    return frozenset(connection.execute(statement.distinct()).scalars())


def _files(connection: Connection, pipeline: PipelineName, chosen: ColumnElement[bool]) -> tuple[CondemnedFile, ...]:
    columns = (FILE.c.file_id, FILE.c.size_bytes, FILE.c.created_by)
    maker = CHECKPOINT.c.directory, CHECKPOINT.c.kind, CHECKPOINT.c.attempt
    same = (CHECKPOINT.c.pipeline == FILE.c.pipeline) & (CHECKPOINT.c.checkpoint_id == FILE.c.created_by)
    statement = select(*columns, *maker).join(CHECKPOINT, same).where(FILE.c.pipeline == pipeline, chosen)
    rows = connection.execute(statement).all()
    return tuple(_condemned({**checked(FILE, row), **checked(CHECKPOINT, row)}) for row in rows)


def _condemned(values: Mapping[str, Any]) -> CondemnedFile:
    """Return a file with the directory, kind and attempt of the checkpoint that created it."""
    attempt = None if values["attempt"] is None else AttemptId(values["attempt"])
    return CondemnedFile(
        values["file_id"],
        values["size_bytes"],
        CheckpointId(values["created_by"]),
        values["directory"],
        SnapshotKind(values["kind"]),
        attempt,
    )


def _check_disposable(record: CheckpointRecord) -> None:
    name = f"{record.pipeline}/{record.checkpoint_id}"
    if record.state is CheckpointState.QUARANTINED:
        return
    if record.kind is not SnapshotKind.SAVEPOINT:
        raise InvalidRequestError(
            f"{name} is a checkpoint: only savepoints and checkpoints in quarantine can be disposed of by hand",
            kind="not-a-savepoint",
            hint="retention deletes checkpoints, by checkpoint.retain of the pipeline file",
        )
    if record.state is not CheckpointState.COMPLETED:
        raise InvalidRequestError(
            f"savepoint {name} is {record.state}: expected COMPLETED",
            kind="not-completed",
            hint="statelib orphans finds the files that an aborted savepoint left behind",
        )


def _log(connection: Connection, step: tuple[PipelineName, str, str, int], uris: Sequence[str]) -> int:
    """Write one row of ``gc_log`` per file, and return the number of files. ``step``: pipeline, run, phase, time."""
    if uris:
        values = dict(zip(("pipeline", "run_id", "phase", "at_ms"), step, strict=True))
        connection.execute(insert(GC_LOG), [{**values, "file_id": uri} for uri in uris])
    return len(uris)
