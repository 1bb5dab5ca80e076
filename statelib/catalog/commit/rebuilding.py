"""The catalog's part of a rebuild: enter snapshots that exist on storage, as if a run had registered them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from statelib.catalog.commit import gate, holdings, leases
from statelib.catalog.engine import Transaction
from statelib.catalog.tables import verdicts
from statelib.catalog.tables.queries import in_chunks
from statelib.catalog.tables.row_checks import checked
from statelib.catalog.tables.rows import Values, completed_values
from statelib.catalog.tables.schema import CHECKPOINT, LEASE
from statelib.errors import ConflictError
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId, Epoch, PipelineName, issued_number
from statelib.model.quality import QualityResult
from statelib.model.record import CheckpointRecord, CheckpointState, CommitFacts, PipelineHead

_OWNER = "statelib catalog rebuild"


@dataclass(frozen=True)
class RebuiltCheckpoint:
    """A snapshot that a rebuild registers. ``record``: its row, COMPLETED or QUARANTINED. ``facts``: the columns that
    a commit writes. ``results``: the results of the gate, empty if it did not run. ``replaces``: the state of the row
    that is completed; None: the row is new."""

    record: CheckpointRecord
    facts: CommitFacts
    results: tuple[QualityResult, ...] = ()
    replaces: CheckpointState | None = None


@dataclass(frozen=True)
class RebuiltPipeline:
    """A pipeline that a rebuild registers. ``head`` and ``next_id``: its new row. ``before`` and ``before_next_id``:
    its epoch and next id when that was decided."""

    head: PipelineHead
    next_id: int
    before: Epoch
    before_next_id: int


@dataclass(frozen=True)
class Rebuilding:
    """The operations behind ``Catalog.rebuilding``. They raise the errors of every catalog method."""

    transaction: Transaction
    clock: Callable[[], int]

    def next_id(self, pipeline: PipelineName) -> int:
        """Return the id that the pipeline's next checkpoint will have; 1 if the catalog has no such pipeline."""
        with self.transaction(read_only=True) as connection:
            row = connection.execute(select(LEASE).where(LEASE.c.pipeline == pipeline)).first()
            return 1 if row is None else int(checked(LEASE, row)["next_id"])

    def is_as_rebuilt(self, pipeline: PipelineName) -> bool:
        """Return whether a rebuild was the last to change the pipeline's head: no checkpoint began and no restore
        happened since."""
        with self.transaction(read_only=True) as connection:
            owner = connection.execute(select(LEASE.c.owner).where(LEASE.c.pipeline == pipeline)).scalar()
            return owner == _OWNER

    def with_rows(self, directories: Sequence[str]) -> set[str]:
        """Return those of the directories that the catalog has a row of, in any state and of any pipeline."""
        place = CHECKPOINT.c.directory
        with self.transaction(read_only=True) as connection:
            rows = [connection.execute(select(place).where(place.in_(some))).all() for some in in_chunks(directories)]
            return {directory for some in rows for (directory,) in some}

    def enter(
        self,
        pipelines: Sequence[RebuiltPipeline],
        entries: Sequence[RebuiltCheckpoint],
        given_up: Sequence[CheckpointRecord] = (),
    ) -> None:
        """Enter pipelines and snapshots in one transaction. Older snapshots come first, because the first snapshot that
        has a file is recorded as its creator. ``given_up``: checkpoints to enter as ABORTED with their reason; the
        orphan sweep deletes their files.

        Raises ConflictError: ``catalog-changed`` if another process changed a pipeline meanwhile, ``file-changed``,
        ``file-condemned``."""
        now_ms = self.clock()
        with self.transaction("rebuild") as connection:
            for rebuilt in sorted(pipelines, key=lambda s: s.head.pipeline):
                _check_unchanged(connection, rebuilt, now_ms)
            for entry in sorted(entries, key=lambda e: (e.record.created_at_ms, e.record.checkpoint_id)):
                _enter(connection, entry, now_ms)
            for record in given_up:
                _give_up(connection, record)
            for rebuilt in pipelines:
                _set_lease(connection, rebuilt, now_ms)


def _check_unchanged(connection: Connection, rebuilt: RebuiltPipeline, now_ms: int) -> None:
    pipeline = rebuilt.head.pipeline
    head = leases.lock(connection, pipeline, now_ms)
    next_id = connection.execute(select(LEASE.c.next_id).where(LEASE.c.pipeline == pipeline)).scalar_one()
    if (head.epoch, next_id) != (rebuilt.before, rebuilt.before_next_id):
        raise _changed(pipeline)


def _changed(pipeline: PipelineName) -> ConflictError:
    return ConflictError(
        f"pipeline {pipeline} was changed while its snapshots were read: nothing was entered",
        kind="catalog-changed",
        hint="stop its runs, then rebuild again",
    )


def _enter(connection: Connection, entry: RebuiltCheckpoint, now_ms: int) -> None:
    record, facts = entry.record, entry.facts
    place = record.pipeline, record.checkpoint_id
    aside = gate.aside(record.reason) if record.state is CheckpointState.QUARANTINED else {}
    values = {**completed_values(facts, record.created_at_ms), **aside}
    if entry.replaces is None:
        connection.execute(insert(CHECKPOINT).values({**_values(record), **values}))
    else:
        _complete(connection, entry, values)
    if record.kind is SnapshotKind.CHECKPOINT:
        # A savepoint may be a copy from elsewhere: its attempt is not recorded, because an ended attempt lets the
        # orphan sweep delete files, and these may belong to another checkpoint.
        holdings.open_attempt(connection, *place, facts.attempt, record.created_at_ms)
    holdings.close_attempts(connection, *place, facts.attempt)
    holdings.record_files(connection, *place, facts.files, record.owner)
    gate.insert_results(connection, place, (1 + verdicts.newest_run(connection, *place), now_ms), entry.results)


def _complete(connection: Connection, entry: RebuiltCheckpoint, values: Values) -> None:
    """Complete the row that the catalog has already. Raises ConflictError (``catalog-changed``) if another process has
    changed its state."""
    c, record = CHECKPOINT.c, entry.record
    changed = connection.execute(
        update(CHECKPOINT)
        .where(c.pipeline == record.pipeline, c.checkpoint_id == record.checkpoint_id, c.state == entry.replaces)
        .values({"state": record.state, "note": record.note, **values})
    )
    if changed.rowcount != 1:
        raise _changed(record.pipeline)


def _give_up(connection: Connection, record: CheckpointRecord) -> None:
    values = {**_values(record), "attempt": record.attempt, "reason": record.reason, "failure": record.failure}
    connection.execute(insert(CHECKPOINT).values({**values, "report": ""}))
    if record.attempt is not None:
        place = record.pipeline, record.checkpoint_id
        holdings.open_attempt(connection, *place, record.attempt, record.created_at_ms)
        leases.abort_attempts(connection, record.pipeline)


def _values(record: CheckpointRecord) -> Values:
    interval = record.interval
    return {
        "pipeline": record.pipeline,
        "checkpoint_id": record.checkpoint_id,
        "kind": record.kind,
        "state": record.state,
        "owner": record.owner,
        "epoch": record.epoch,
        "idempotency_key": record.key,
        "generation": record.generation,
        "base": record.base,
        "interval_start_ms": interval.start_ms if interval else None,
        "interval_end_ms": interval.end_ms if interval else None,
        "strategy": record.strategy,
        "parallelism": record.parallelism,
        "directory": record.directory,
        "created_at_ms": record.created_at_ms,
        "note": record.note,
    }


def _set_lease(connection: Connection, rebuilt: RebuiltPipeline, now_ms: int) -> None:
    head = rebuilt.head
    issued_number(rebuilt.next_id, head.pipeline, "checkpoint id")
    issued_number(head.epoch, head.pipeline, "epoch")
    connection.execute(
        update(LEASE)
        .where(LEASE.c.pipeline == head.pipeline)
        .values(
            epoch=head.epoch,
            next_id=rebuilt.next_id,
            generation=head.generation,
            head=_number(head.head),
            parallelism=head.parallelism,
            owner=_OWNER,
            heartbeat_at_ms=now_ms,
        )
    )


def _number(checkpoint_id: CheckpointId | None) -> int | None:
    return None if checkpoint_id is None else int(checkpoint_id)
