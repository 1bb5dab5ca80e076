"""Queries for people: the history sorted, filtered and in pages; the head of each pipeline; verdicts of the gate.

Everything here only reads. The number of statements does not depend on the number of checkpoints.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, Text, cast, func, literal, or_, select, tuple_
from sqlalchemy.sql.elements import literal_column

from statelib.catalog.commit.admission import failed_in_a_row
from statelib.catalog.engine import Transaction
from statelib.catalog.tables import verdicts
from statelib.catalog.tables.checking import RowFault, check_rows
from statelib.catalog.tables.queries import in_chunks
from statelib.catalog.tables.row_checks import checked
from statelib.catalog.tables.rows import events_of, interval_of
from statelib.catalog.tables.schema import CHECKPOINT, FILE, LEASE, REF
from statelib.catalog.views.storage_use import StorageUse
from statelib.errors import CorruptStateError, InvalidRequestError, NotFoundError
from statelib.model.checkpoint import DataInterval, EventCounts
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.quality import GateSummary, QualityResult
from statelib.model.record import CheckpointState, mended_interval

_C = CHECKPOINT.c
_DURATION = _C.completed_at_ms - _C.created_at_ms
SORTS: dict[str, ColumnElement[int]] = {
    "checkpoint_id": _C.checkpoint_id,
    "created_at_ms": _C.created_at_ms,
    "duration_ms": _DURATION,
    "size_bytes": _C.size_bytes,
    "uploaded_bytes": _C.uploaded_bytes,
    "entries": _C.entries,
    "keys": _C["keys"],
    "keys_changed": _C.keys_changed,
}
"""The columns by which a history can be sorted. NULL comes last in both directions."""
MAX_PAGE, MAX_LINEAGE, MAX_HOLDERS, MAX_CHECKS = 500, 200, 20, 1000
_GONE = (CheckpointState.DELETING, CheckpointState.DELETED)
_PENDING = (_C.state == literal_column("'PENDING'")) & (_C.kind == literal_column("'CHECKPOINT'"))
"""The condition of the partial index, with literals: with bound parameters SQLite would not use the index."""


@dataclass(frozen=True)
class Entry:
    """A checkpoint as the catalog has it. ``kind``, ``state``, ``owner`` and ``failure`` are the stored words, so that
    words of a later statelib are shown instead of refused. ``mends``: the interval that it corrects, in place of
    ``interval``. ``report``: URI, '' if there is none. Times are epoch milliseconds."""

    pipeline: PipelineName
    checkpoint_id: CheckpointId
    kind: str
    state: str
    head: bool
    owner: str
    strategy: str
    parallelism: int
    generation: int
    base: int | None
    interval: DataInterval | None
    mends: DataInterval | None
    created_at_ms: int
    completed_at_ms: int | None
    deadline_ms: int | None
    sync_ms: int | None
    async_ms: int | None
    upload_ms: int | None
    entries: int | None
    keys: int | None
    size_bytes: int | None
    uploaded_bytes: int | None
    keys_changed: int | None
    events: EventCounts | None
    note: str
    failure: str | None
    reason: str
    directory: str
    report: str
    begun_by: str
    gate: GateSummary | None

    @property
    def duration_ms(self) -> int | None:
        """Milliseconds from begin to commit, None before the commit."""
        return None if self.completed_at_ms is None else self.completed_at_ms - self.created_at_ms


@dataclass(frozen=True)
class PageRequest:
    """The selection and order of one page of a history. ``states``, ``kinds``: empty means all. ``text``: the note,
    reason or failure contains it, or the id is equal to it. Raises InvalidRequestError (``bad-page``) if limit, offset
    or sort is out of range."""

    limit: int = 50
    offset: int = 0
    sort: str = "checkpoint_id"
    descending: bool = True
    states: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    text: str = ""

    def __post_init__(self) -> None:
        if self.sort not in SORTS or not 1 <= self.limit <= MAX_PAGE or not 0 <= self.offset < 1 << 31:
            raise InvalidRequestError(
                f"page of a history: limit {self.limit}, offset {self.offset}, sort {self.sort!r}: expected 1 to "
                f"{MAX_PAGE}, 0 or more, one of {', '.join(SORTS)}",
                kind="bad-page",
            )


@dataclass(frozen=True)
class Page:
    """One page of a history. ``total``: the number of checkpoints on all pages together."""

    total: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class PipelineSummary:
    """The present state of a pipeline. ``failures``: checkpoints that failed in a row. ``quarantined``: number of
    checkpoints in quarantine. ``problem``: names a damaged row of the pipeline, '' if no row that was read is damaged.
    """

    pipeline: PipelineName
    generation: int
    cancelled: bool
    failures: int
    quarantined: int
    head: Entry | None
    pending: Entry | None
    problem: str = ""


@dataclass(frozen=True)
class Ancestor:
    """One checkpoint of a lineage: the checkpoint that it starts from, its base, the base's base, and so on."""

    checkpoint_id: CheckpointId
    kind: str
    state: str
    interval: DataInterval | None
    mends: DataInterval | None
    completed_at_ms: int | None


@dataclass(frozen=True)
class Holders:
    """The checkpoints that refer to a file. ``created_by``: id of the checkpoint that created it, in the pipeline that
    owns the file. ``others``: the newest ids of the same pipeline, at most :data:`MAX_HOLDERS`. ``total``: number of
    other checkpoints that refer to it, of all pipelines."""

    created_by: CheckpointId
    others: tuple[CheckpointId, ...]
    total: int


@dataclass(frozen=True)
class Browsing:
    """The operations behind ``Catalog.browsing``. They raise the errors of every catalog method."""

    transaction: Transaction
    clock: Callable[[], int]

    @property
    def storage(self) -> StorageUse:
        """The storage that the pipelines use now and used earlier."""
        return StorageUse(self.transaction, self.clock)

    def check(self) -> tuple[int, list[RowFault]]:
        """Check every row of the catalog. Return the number of rows and the faults in them."""
        with self.transaction(read_only=True) as connection:
            return check_rows(connection)

    def summaries(self, pipelines: Collection[PipelineName]) -> dict[PipelineName, PipelineSummary]:
        """Return the present position of each pipeline. Pipelines that never began a checkpoint are omitted."""
        with self.transaction(read_only=True) as connection:
            leases = connection.execute(_leases(pipelines)).all()
            heads = select(CHECKPOINT).join(LEASE, _same_pipeline() & (LEASE.c.head == _C.checkpoint_id))
            heads = heads.where(LEASE.c.pipeline.in_(pipelines))
            pending = select(CHECKPOINT).where(_C.pipeline.in_(pipelines), _PENDING)
            rows = [row for statement in (heads, pending) for row in connection.execute(statement)]
            problems: dict[str, str] = {}
            sound = {row.pipeline for row in _undamaged(LEASE, leases, problems)}
            entries = _entries(connection, _undamaged(CHECKPOINT, rows, problems), {r.pipeline: r.head for r in leases})
        by_role = {(e.pipeline, e.head): e for e in entries}
        return {
            PipelineName(str(row.pipeline)): PipelineSummary(
                PipelineName(str(row.pipeline)),
                row.generation if row.pipeline in sound else 0,
                row.cancelled_at_ms is not None,
                row.failures,
                row.quarantined,
                by_role.get((row.pipeline, True)),
                by_role.get((row.pipeline, False)),
                problems.get(row.pipeline, ""),
            )
            for row in leases
        }

    def page(self, pipeline: PipelineName, request: PageRequest) -> Page:
        """Return one page of a pipeline's history. It is empty if the pipeline never began a checkpoint."""
        where = [_C.pipeline == pipeline, *_filters(request)]
        column = SORTS[request.sort]
        order = (column.desc() if request.descending else column.asc()).nulls_last()
        order_by_id = _C.checkpoint_id.desc() if request.descending else _C.checkpoint_id.asc()
        statement = select(CHECKPOINT).where(*where).order_by(order, order_by_id)
        with self.transaction(read_only=True) as connection:
            total = connection.execute(select(func.count()).select_from(CHECKPOINT).where(*where)).scalar_one()
            rows = connection.execute(statement.limit(request.limit).offset(request.offset)).all()
            return Page(total, tuple(_entries(connection, rows, _head(connection, pipeline))))

    def entry(self, pipeline: PipelineName, checkpoint_id: CheckpointId) -> Entry:
        """Return one checkpoint. Raises NotFoundError (``no-checkpoint``)."""
        statement = select(CHECKPOINT).where(_C.pipeline == pipeline, _C.checkpoint_id == checkpoint_id)
        with self.transaction(read_only=True) as connection:
            rows = connection.execute(statement).all()
            if not rows:
                raise NotFoundError(f"pipeline {pipeline} has no checkpoint {checkpoint_id}", kind="no-checkpoint")
            return _entries(connection, rows, _head(connection, pipeline))[0]

    def begun_by(self, pipeline: PipelineName, prefix: str) -> CheckpointId | None:
        """Return the id of the newest checkpoint whose ``begun_by`` starts with ``prefix``, None if there is none."""
        statement = select(func.max(_C.checkpoint_id)).where(
            _C.pipeline == pipeline, _C.begun_by.startswith(prefix, autoescape=True)
        )
        with self.transaction(read_only=True) as connection:
            number = connection.execute(statement).scalar_one()
            return None if number is None else CheckpointId(number)

    def lineage(self, pipeline: PipelineName, checkpoint_id: CheckpointId) -> tuple[Ancestor, ...]:
        """Return the checkpoint itself, its base, the base's base and so on, at most :data:`MAX_LINEAGE` of them."""
        with self.transaction(read_only=True) as connection:
            rows = connection.execute(_lineage(pipeline, checkpoint_id)).all()
            checkpoints = (checked(CHECKPOINT, row, any_word=True) for row in rows)
            return tuple(
                Ancestor(
                    CheckpointId(v["checkpoint_id"]),
                    v["kind"],
                    v["state"],
                    interval_of(v["interval_start_ms"], v["interval_end_ms"]),
                    mended_interval(v["idempotency_key"]),
                    v["completed_at_ms"],
                )
                for v in checkpoints
            )

    def quality(self, pipeline: PipelineName, checkpoint_id: CheckpointId) -> tuple[QualityResult, ...]:
        """Return the results of the gate's newest run on a checkpoint, one per expectation, at most
        :data:`MAX_CHECKS`."""
        with self.transaction(read_only=True) as connection:
            return verdicts.results(connection, pipeline, checkpoint_id, MAX_CHECKS)

    def holders(self, entry: Entry, uris: Sequence[str]) -> dict[str, Holders]:
        """Return the checkpoints besides ``entry`` that refer to the files, by URI. Files without a row in the catalog
        are omitted."""
        by_uri: dict[str, Holders] = {}
        with self.transaction(read_only=True) as connection:
            for some in in_chunks(uris):
                by_uri |= _holders(connection, entry, some)
        return by_uri


def _undamaged(
    table: Table, rows: Sequence[Row[*tuple[Any, ...]]], problems: dict[str, str]
) -> list[Row[*tuple[Any, ...]]]:
    """Return the rows that are not damaged. Add the first error of the others to ``problems``, by pipeline."""
    undamaged = []
    for row in rows:
        try:
            checked(table, row, any_word=True)
            undamaged.append(row)
        except CorruptStateError as error:
            problems.setdefault(row.pipeline, error.message)
    return undamaged


def _leases(pipelines: Collection[PipelineName]) -> Select[*tuple[Any, ...]]:
    quarantined = (
        select(func.count())
        .select_from(CHECKPOINT)
        .where(_same_pipeline(), _C.state == literal_column("'QUARANTINED'"))
        .correlate(LEASE)
    )
    failures = failed_in_a_row(LEASE.c.pipeline).correlate(LEASE)
    return select(
        LEASE.c.pipeline,
        LEASE.c.generation,
        LEASE.c.head,
        LEASE.c.cancelled_at_ms,
        failures.scalar_subquery().label("failures"),
        quarantined.scalar_subquery().label("quarantined"),
    ).where(LEASE.c.pipeline.in_(pipelines))


def _same_pipeline() -> ColumnElement[bool]:
    return _C.pipeline == LEASE.c.pipeline


def _filters(request: PageRequest) -> list[ColumnElement[bool]]:
    chosen: list[ColumnElement[bool]] = []
    if request.states:
        chosen.append(_C.state.in_(request.states))
    if request.kinds:
        chosen.append(_C.kind.in_(request.kinds))
    if request.text:
        contains = (c.icontains(request.text, autoescape=True) for c in (_C.note, _C.reason, _C.failure))
        chosen.append(or_(*contains, cast(_C.checkpoint_id, Text) == request.text))
    return chosen


def _head(connection: Connection, pipeline: PipelineName) -> dict[str, int | None]:
    rows = connection.execute(select(LEASE.c.pipeline, LEASE.c.head).where(LEASE.c.pipeline == pipeline))
    return {row.pipeline: row.head for row in rows}


def _entries(
    connection: Connection, rows: Sequence[Row[*tuple[Any, ...]]], heads: dict[str, int | None]
) -> list[Entry]:
    gates = verdicts.summaries_of(connection, [(row.pipeline, row.checkpoint_id) for row in rows])
    return [_entry(row, heads, gates.get((row.pipeline, row.checkpoint_id))) for row in rows]


def _entry(row: Row[*tuple[Any, ...]], heads: dict[str, int | None], gate: GateSummary | None) -> Entry:
    values = checked(CHECKPOINT, row, any_word=True)
    computed = ("head", "interval", "mends", "events", "gate")
    columns = {name: values[name] for name in Entry.__dataclass_fields__ if name not in computed}
    return Entry(
        **columns,
        head=heads.get(row.pipeline) == row.checkpoint_id,
        interval=interval_of(row.interval_start_ms, row.interval_end_ms),
        mends=mended_interval(values["idempotency_key"]),
        events=events_of(row.events_read, row.events_applied, row.events_null_key),
        gate=gate,
    )


def _lineage(pipeline: PipelineName, start: CheckpointId) -> Select[*tuple[Any, ...]]:
    chain = (
        select(_C.checkpoint_id, _C.base, literal(1).label("depth"))
        .where(_C.pipeline == pipeline, _C.checkpoint_id == start)
        .cte("chain", recursive=True)
    )
    older = select(_C.checkpoint_id, _C.base, chain.c.depth + 1).where(
        _C.pipeline == pipeline,
        _C.checkpoint_id == chain.c.base,
        chain.c.base < chain.c.checkpoint_id,
        chain.c.depth < MAX_LINEAGE,
    )
    chain = chain.union_all(older)
    interval = (_C.idempotency_key, _C.interval_start_ms, _C.interval_end_ms)
    columns = (_C.checkpoint_id, _C.kind, _C.state, *interval, _C.completed_at_ms)
    joined = select(*columns).join(chain, chain.c.checkpoint_id == _C.checkpoint_id)
    return joined.where(_C.pipeline == pipeline).order_by(chain.c.depth)


def _holders(connection: Connection, entry: Entry, uris: Sequence[str]) -> dict[str, Holders]:
    own = (entry.pipeline, entry.checkpoint_id)
    other = tuple_(REF.c.pipeline, REF.c.checkpoint_id) != tuple_(literal(own[0]), literal(own[1]))
    living = (_C.pipeline == REF.c.pipeline) & (_C.checkpoint_id == REF.c.checkpoint_id) & _C.state.not_in(_GONE)
    newest = ((REF.c.pipeline == own[0]).desc(), REF.c.checkpoint_id.desc())
    ranked = (
        select(
            REF.c.file_id,
            REF.c.pipeline,
            REF.c.checkpoint_id,
            func.count().over(partition_by=REF.c.file_id).label("total"),
            func.row_number().over(partition_by=REF.c.file_id, order_by=newest).label("place"),
        )
        .join(CHECKPOINT, living)
        .where(REF.c.file_id.in_(uris), other)
        .subquery()
    )
    others: dict[str, list[CheckpointId]] = {}
    totals: dict[str, int] = {}
    for row in connection.execute(select(ranked).where(ranked.c.place <= MAX_HOLDERS)):
        totals[row.file_id] = row.total
        if row.pipeline == own[0]:
            others.setdefault(row.file_id, []).append(CheckpointId(row.checkpoint_id))
    created = connection.execute(select(FILE.c.file_id, FILE.c.created_by).where(FILE.c.file_id.in_(uris)))
    return {
        uri: Holders(CheckpointId(by), tuple(sorted(others.get(uri, ()), reverse=True)), totals.get(uri, 0))
        for uri, by in created
    }
