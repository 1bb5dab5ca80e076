"""The number of bytes on storage that a pipeline's checkpoints need, share and no longer need, now and over time.

The numbers come from the catalog's rows, not from storage: they do not include orphans, which are files that no
checkpoint ever registered.
"""

import logging
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
from statelib.errors import StatelibError
from statelib.model.ids import PipelineName
from statelib.model.moments import HOUR_MS
from statelib.model.record import CheckpointState, Owner

log = logging.getLogger(__name__)

FINE_MS = 30 * 24 * HOUR_MS
"""The age after which only the last sample of each hour is kept."""
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
    """The storage use of one pipeline, ``_metadata`` files included. ``files``: number of files.
    ``live_bytes``: bytes of the files that the system's checkpoints need. ``shared_bytes``: the part of ``live_bytes``
    in files that two or more finished checkpoints need. ``garbage_bytes``: bytes of the files that gc deletes next.
    ``savepoint_bytes``: bytes of the files that belong to users."""

    files: int = 0
    live_bytes: int = 0
    shared_bytes: int = 0
    garbage_bytes: int = 0
    savepoint_bytes: int = 0

    @property
    def amplification(self) -> float | None:
        """The system's bytes on storage, divided by the bytes that checkpoints need. None if they need none."""
        return (self.live_bytes + self.garbage_bytes) / self.live_bytes if self.live_bytes else None


@dataclass(frozen=True)
class StorageSample:
    """The storage use of a pipeline at one time, in epoch milliseconds."""

    at_ms: int
    usage: Usage


@dataclass(frozen=True)
class StorageUse:
    """The operations behind ``Catalog.browsing.storage``. They raise the errors of every catalog method."""

    transaction: Transaction
    clock: Callable[[], int]

    def now(self, pipelines: Collection[PipelineName]) -> dict[PipelineName, Usage]:
        """Return the present storage use of each pipeline."""
        with self.transaction(read_only=True) as connection:
            return _usage(connection, pipelines)

    def sample(self, pipeline: PipelineName) -> None:
        """Write a sample of the present storage use, and delete old samples as :data:`FINE_MS` says."""
        at_ms = self.clock()
        with self.transaction("sample") as connection:
            usage = _usage(connection, [pipeline])[pipeline]
            connection.execute(_INSERT, {"pipeline": pipeline, "at_ms": at_ms, **vars(usage)})
            connection.execute(_thin(pipeline, at_ms - FINE_MS))

    def try_to_sample(self, pipeline: PipelineName) -> None:
        """Write a sample as :meth:`sample` does, and log a warning if the catalog cannot write it. Every operation that
        changes the pipeline's files calls this after its own commit, which a missing point of the chart must not
        undo."""
        try:
            self.sample(pipeline)
        except StatelibError as error:
            log.warning("%s: the storage in use was not recorded, the chart lacks this point: %s", pipeline, error)

    def samples(self, pipeline: PipelineName) -> tuple[StorageSample, ...]:
        """Return the newest :data:`MAX_SAMPLES` samples of a pipeline, the oldest first."""
        newest = select(STORAGE_SAMPLE).where(_S.pipeline == pipeline).order_by(_S.at_ms.desc()).limit(MAX_SAMPLES)
        with self.transaction(read_only=True) as connection:
            rows = connection.execute(newest).all()
        fields = Usage.__dataclass_fields__
        samples = [checked(STORAGE_SAMPLE, row) for row in reversed(rows)]
        return tuple(StorageSample(v["at_ms"], Usage(**{name: v[name] for name in fields})) for v in samples)


def _usage(connection: Connection, pipelines: Collection[PipelineName]) -> dict[PipelineName, Usage]:
    sums: dict[str, dict[str, tuple[int, int]]] = {}
    for statement in (_files(pipelines), _metadata(pipelines)):
        for pipeline, part, files, size in connection.execute(statement):
            before = sums.setdefault(pipeline, {}).get(part, (0, 0))
            sums[pipeline][part] = (before[0] + files, before[1] + int(size))
    return {pipeline: _total(sums.get(pipeline, {})) for pipeline in pipelines}


def _total(parts: dict[str, tuple[int, int]]) -> Usage:
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
    """Return the subquery that counts the checkpoints that refer to the file of the enclosing query, and for which
    ``which`` is true."""
    same_checkpoint = (_C.pipeline == REF.c.pipeline) & (_C.checkpoint_id == REF.c.checkpoint_id)
    joined = select(func.count()).select_from(REF).join(CHECKPOINT, same_checkpoint)
    return joined.where(REF.c.file_id == FILE.c.file_id, which).correlate(FILE).scalar_subquery()


def _metadata(pipelines: Collection[PipelineName]) -> Select[str, str, int, int]:
    part = case((_C.state == CheckpointState.DELETING, _GARBAGE), (_C.owner == Owner.USER, _SAVEPOINT), else_=_LIVE)
    exists: ColumnElement[bool] = _C.metadata_size_bytes.is_not(None) & (_C.state != CheckpointState.DELETED)
    rows = select(_C.pipeline, part.label("part"), _C.metadata_size_bytes.label("size"))
    return _grouped(rows.where(_C.pipeline.in_(pipelines), exists))


def _grouped(rows: Select[str, str, int]) -> Select[str, str, int, int]:
    inner = rows.subquery()
    columns = (inner.c.pipeline, inner.c.part)
    return select(*columns, func.count(), func.sum(inner.c.size)).group_by(*columns)


def _thin(pipeline: PipelineName, before_ms: int) -> Delete:
    """Return the statement that deletes the samples before ``before_ms``, except the last one of each hour."""
    old = STORAGE_SAMPLE.alias()
    hour = old.c.at_ms - old.c.at_ms % literal(HOUR_MS)
    last = select(func.max(old.c.at_ms)).where(old.c.pipeline == pipeline, old.c.at_ms < before_ms).group_by(hour)
    return delete(STORAGE_SAMPLE).where(_S.pipeline == pipeline, _S.at_ms < before_ms, _S.at_ms.not_in(last))
