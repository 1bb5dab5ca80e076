"""How many bytes of the storage a pipeline's checkpoints need, share and leave behind; now, and over time.

Of files the catalog's rows are counted, not the storage itself: what no checkpoint ever registered is the orphan
sweep's to find.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    ScalarSelect,
    Select,
    case,
    delete,
    func,
    literal,
    select,
    text,
)

from statelib.catalog.engine import Transaction
from statelib.catalog.tables.row_checks import checked
from statelib.catalog.tables.schema import CHECKPOINT, FILE, REF, STORAGE_SAMPLE
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState, Owner

HOUR_MS = 3_600_000
FINE_MS = 30 * 24 * HOUR_MS
"""Samples older than this are thinned out to the last one of each hour."""
MAX_SAMPLES = 2000
_C, _S = CHECKPOINT.c, STORAGE_SAMPLE.c
_GONE = (CheckpointState.DELETING, CheckpointState.DELETED)
_LIVE, _SHARED, _GARBAGE, _SAVEPOINT = "live", "shared", "garbage", "savepoint"
_INSERT = text(
    "INSERT INTO storage_sample (pipeline, at_ms, files, live_bytes, shared_bytes, garbage_bytes, savepoint_bytes) "
    "VALUES (:pipeline, :at_ms, :files, :live_bytes, :shared_bytes, :garbage_bytes, :savepoint_bytes) "
    "ON CONFLICT (pipeline, at_ms) DO NOTHING"
)


@dataclass(frozen=True)
class Usage:
    """Bytes of one pipeline, ``_metadata`` files included. ``live_bytes``: that the system's checkpoints need, and of
    those ``shared_bytes``: of files that two or more finished ones need. ``garbage_bytes``: that gc removes next.
    ``savepoint_bytes``: that belong to users. ``files`` counts all of them."""

    files: int = 0
    live_bytes: int = 0
    shared_bytes: int = 0
    garbage_bytes: int = 0
    savepoint_bytes: int = 0

    @property
    def amplification(self) -> float | None:
        """Bytes of the system on storage for each byte that something needs; None if nothing does."""
        return (self.live_bytes + self.garbage_bytes) / self.live_bytes if self.live_bytes else None


@dataclass(frozen=True)
class Sample:
    at_ms: int
    usage: Usage


@dataclass(frozen=True)
class StorageUse:
    """Reached by ``Catalog.browsing.storage``; raises as the catalog does."""

    transaction: Transaction
    clock: Callable[[], int]

    def now(self, pipelines: Collection[PipelineName]) -> dict[PipelineName, Usage]:
        """Of each of the pipelines."""
        with self.transaction(read_only=True) as connection:
            return _usage(connection, pipelines)

    def sample(self, pipeline: PipelineName) -> None:
        """Note what it is now, for the curve over time; called by whoever has changed it. Thins out old samples."""
        at_ms = self.clock()
        with self.transaction("sample") as connection:
            usage = _usage(connection, [pipeline])[pipeline]
            connection.execute(_INSERT, {"pipeline": pipeline, "at_ms": at_ms, **vars(usage)})
            connection.execute(_thin(pipeline, at_ms - FINE_MS))

    def samples(self, pipeline: PipelineName) -> tuple[Sample, ...]:
        """The newest :data:`MAX_SAMPLES`, oldest first."""
        newest = select(STORAGE_SAMPLE).where(_S.pipeline == pipeline).order_by(_S.at_ms.desc()).limit(MAX_SAMPLES)
        with self.transaction(read_only=True) as connection:
            rows = connection.execute(newest).all()
        fields = Usage.__dataclass_fields__
        found = [checked(STORAGE_SAMPLE, row) for row in reversed(rows)]
        return tuple(Sample(v["at_ms"], Usage(**{name: v[name] for name in fields})) for v in found)


def _usage(connection: Connection, pipelines: Collection[PipelineName]) -> dict[PipelineName, Usage]:
    sums: dict[str, dict[str, tuple[int, int]]] = {}
    for statement in (_files(pipelines), _metadata(pipelines)):
        for pipeline, part, files, size in connection.execute(statement):
            before = sums.setdefault(pipeline, {}).get(part, (0, 0))
            sums[pipeline][part] = (before[0] + files, before[1] + int(size))
    return {pipeline: _of(sums.get(pipeline, {})) for pipeline in pipelines}


def _of(parts: dict[str, tuple[int, int]]) -> Usage:
    size = {part: parts.get(part, (0, 0))[1] for part in (_LIVE, _SHARED, _GARBAGE, _SAVEPOINT)}
    return Usage(
        sum(files for files, _ in parts.values()),
        size[_LIVE] + size[_SHARED],
        size[_SHARED],
        size[_GARBAGE],
        size[_SAVEPOINT],
    )


def _files(pipelines: Collection[PipelineName]) -> Select[str, str, int, int]:
    needed = _holders(_C.state.not_in(_GONE))
    finished = _holders(_C.state.not_in((*_GONE, CheckpointState.PENDING)))
    part = case(
        (FILE.c.state == "CONDEMNED", _GARBAGE),
        (FILE.c.owner == Owner.USER, _SAVEPOINT),
        (needed == 0, _GARBAGE),
        (finished > 1, _SHARED),
        else_=_LIVE,
    )
    chosen = FILE.c.pipeline.in_(pipelines) & FILE.c.state.in_(("LIVE", "CONDEMNED"))
    return _grouped(select(FILE.c.pipeline, part.label("part"), FILE.c.size_bytes.label("size")).where(chosen))


def _holders(which: ColumnElement[bool]) -> ScalarSelect[int]:
    """How many checkpoints in certain states refer to a file of the query around it."""
    same = (_C.pipeline == REF.c.pipeline) & (_C.checkpoint_id == REF.c.checkpoint_id)
    joined = select(func.count()).select_from(REF).join(CHECKPOINT, same)
    return joined.where(REF.c.file_id == FILE.c.file_id, which).correlate(FILE).scalar_subquery()


def _metadata(pipelines: Collection[PipelineName]) -> Select[str, str, int, int]:
    part = case((_C.state == CheckpointState.DELETING, _GARBAGE), (_C.owner == Owner.USER, _SAVEPOINT), else_=_LIVE)
    there: ColumnElement[bool] = _C.metadata_size_bytes.is_not(None) & (_C.state != CheckpointState.DELETED)
    rows = select(_C.pipeline, part.label("part"), _C.metadata_size_bytes.label("size"))
    return _grouped(rows.where(_C.pipeline.in_(pipelines), there))


def _grouped(rows: Select[str, str, int]) -> Select[str, str, int, int]:
    inner = rows.subquery()
    columns = (inner.c.pipeline, inner.c.part)
    return select(*columns, func.count(), func.sum(inner.c.size)).group_by(*columns)


def _thin(pipeline: PipelineName, before_ms: int) -> Delete:
    """Delete what is older, but for the last sample of each hour."""
    old = STORAGE_SAMPLE.alias()
    hour = old.c.at_ms - old.c.at_ms % literal(HOUR_MS)
    last = select(func.max(old.c.at_ms)).where(old.c.pipeline == pipeline, old.c.at_ms < before_ms).group_by(hour)
    return delete(STORAGE_SAMPLE).where(_S.pipeline == pipeline, _S.at_ms < before_ms, _S.at_ms.not_in(last))
