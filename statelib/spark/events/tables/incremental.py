"""Sources with ``incremental``: each run reads the commits to a table since those that the state has.

The version up to which commits are applied is stored in the checkpoint. So no commit is read twice and none is left
out, whatever the time at which it arrives in the table and whichever checkpoint a run builds on. The end of the
interval is the other bound: commits at or after it belong to a later run.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import SourcePart, source_parts
from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.model.checkpoint import DataInterval, SourcePosition, TableVersion
from statelib.model.task_error import noting_task_error
from statelib.spark.dataframe.arrow_types import batches_of, spark_schema
from statelib.spark.events.source_open import options_of
from statelib.spark.events.tables.delta_log import DeltaLog
from statelib.spark.events.tables.iceberg_log import IcebergLog
from statelib.spark.events.tables.table_log import CHANGE_COLUMNS, TableLog
from statelib.storage.registry import new_attempt

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TablePlace:
    """The place of a table: its ``format``, its path or name, and how its storage is reached. Can be pickled."""

    format: str
    place: str
    options: tuple[tuple[str, str], ...]

    def log(self, version: int | None = None) -> TableLog:
        """Return the log of the table as of a version, or as of now. Raises NotFoundError (``no-source``)."""
        if self.format == "iceberg":
            return IcebergLog(self.place, version)
        return DeltaLog(self.place, dict(self.options), version)


@dataclass(frozen=True)
class TableRead:
    """The rows of one table that are read by a run: those of the ``commits``; all rows of the version ``upto`` if
    ``commits`` is None. ``source``: the field of the source in the pipeline file. Can be pickled."""

    source: str
    table: TablePlace
    table_id: str
    commits: tuple[int, ...] | None
    upto: int

    @property
    def version(self) -> TableVersion:
        """The version that is applied after this read."""
        return TableVersion(self.source, self.table_id, self.upto)

    def pieces(self, most: int) -> Sequence[tuple[int, int]]:
        """Return what each of at most ``most`` tasks reads: the bounds of a part of the commits, or the number of a
        piece of the whole table and the number of pieces."""
        if self.commits is None:
            return [(piece, most) for piece in range(most)]
        count = min(most, len(self.commits))
        bounds = [len(self.commits) * piece // count for piece in range(count + 1)] if count else []
        return list(pairwise(bounds))

    def rows(self, piece: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one of the pieces, with the columns of a change data feed."""
        opened = self.table.log(self.upto)
        return opened.rows(*piece) if self.commits is None else opened.changes(self.commits[slice(*piece)])


@dataclass(frozen=True)
class TableReads:
    """The rows of the incremental sources that are read by a run. ``of``: by the field of the source; None if its table
    does not exist yet, or has no commit before the end of the interval. ``token``: marks the errors of the tasks
    (:func:`~statelib.model.task_error.noting_task_error`)."""

    of: Mapping[str, TableRead | None]
    token: str

    def versions(self, applied: SourcePosition) -> tuple[TableVersion, ...]:
        """Return the versions that the state has after the run. ``applied``: the position before it. A source that is
        no longer incremental has none."""
        before = {version.source: version for version in applied.versions}
        return tuple(
            read.version if read else before.get(field, TableVersion.none(field)) for field, read in self.of.items()
        )


def table_reads(
    pipeline: Pipeline,
    data: str,
    interval: DataInterval,
    applied: SourcePosition,
    token: str,
    *,
    without: Collection[str] = (),
) -> TableReads:
    """Return what a run of the interval reads of the incremental sources. ``applied``: the position of the state that
    the run builds on. If it has applied intervals, but none of a source, the commits of this source since the start of
    the interval are read. ``without``: the fields of the sources that are not read.

    Raises NotFoundError (``no-source``), ConflictError (``source-replaced``, ``source-history-gone``)."""
    parts = source_parts(pipeline, data, interval)
    parts = tuple(part for part in parts if part.source.incremental and part.field not in without)
    return TableReads({part.field: _read_of(pipeline, part, interval, applied) for part in parts}, token)


def _read_of(pipeline: Pipeline, part: SourcePart, interval: DataInterval, applied: SourcePosition) -> TableRead | None:
    table = TablePlace(part.source.file_format, part.path or part.table or "", tuple(options_of(part).items()))
    try:
        opened = table.log()
    except NotFoundError as error:
        if error.kind == "no-source" and part.source.on_missing == "empty":
            return None
        raise
    stored = _stored_version(pipeline, part, opened, applied)
    if stored is None and applied.interval is not None:
        after = next(reversed(opened.commits(None, interval.start_ms)), None)
    else:
        after = _applied_version(pipeline, part, opened, stored or TableVersion.none(part.field))
    commits = opened.commits(after, interval.end_ms)
    upto = next(reversed(commits), after)
    if upto is None:
        return None
    what = f"version {upto}" if after is None else f"{len(commits)} commits after version {after}"
    log.info("%s: table %s: %s", part.field, table.place, what)
    return TableRead(part.field, table, opened.table, None if after is None else tuple(commits), upto)


def _stored_version(
    pipeline: Pipeline, part: SourcePart, opened: TableLog, applied: SourcePosition
) -> TableVersion | None:
    """Return the stored version of a source, or that of its table under a name that no source has any more."""
    names = set(pipeline.inputs) - {part.field}
    renamed = (version for version in applied.versions if version.table == opened.table and version.source not in names)
    return next((version for version in applied.versions if version.source == part.field), next(renamed, None))


def _applied_version(pipeline: Pipeline, part: SourcePart, opened: TableLog, stored: TableVersion) -> int | None:
    """Return the version of the table that the state has, None if it has none.

    Raises ConflictError (``source-replaced``) if it is the version of another table."""
    if stored == TableVersion.none(part.field):
        return None
    if stored.table != opened.table:
        raise ConflictError(
            f"pipeline {pipeline.name}: {part.field}: the table {part.place} was replaced: expected {stored.table} "
            f"with version {stored.version}, found {opened.table}",
            kind="source-replaced",
            hint="give the source another name under 'sources' to read the commits of the new table from now on",
        )
    return stored.version


def read_table(spark: SparkSession, pipeline: Pipeline, part: SourcePart, reads: TableReads) -> DataFrame | None:
    """Return the rows that are read of one source, with the columns of the table and those of a change data feed; None
    if nothing is read.

    Its tasks raise InvalidRequestError (``source-not-append-only``) for a row that was updated or deleted, unless the
    source says what such a row means."""
    read = reads.of.get(part.field)
    if read is None:
        return None
    takes_changes = bool(part.source.changes or part.source.delete_when)
    check = None if takes_changes else partial(_check_inserted, read)
    return _frame(spark, read, pipeline.parallelism, reads.token, check)


def whole_table(spark: SparkSession, table: TablePlace, pieces: int) -> DataFrame | None:
    """Return the rows of the newest version of a table, read by ``pieces`` tasks; None if it has no version.

    Raises NotFoundError (``no-source``), UnsupportedError (``source-features``)."""
    upto = table.log().version
    if upto is None:
        return None
    names = (column.name for column in CHANGE_COLUMNS)
    return _frame(spark, TableRead("", table, "", None, upto), pieces, new_attempt()).drop(*names)


def _frame(
    spark: SparkSession,
    read: TableRead,
    most_pieces: int,
    token: str,
    check: Callable[[pa.RecordBatch], None] | None = None,
) -> DataFrame:
    """Return the rows of a read. ``check`` raises for a batch with rows that must not be there."""
    schema = spark_schema(read.table.log(read.upto).columns())
    pieces = read.pieces(most_pieces)

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch["id"].to_pylist()):
            with noting_task_error(token, number):
                for batch in read.rows(pieces[number]):
                    if check is not None:
                        check(batch)
                    yield from batches_of(pa.table(batch), schema)

    return spark.range(0, len(pieces), 1, max(len(pieces), 1)).mapInArrow(rows, schema)


def _check_inserted(read: TableRead, batch: pa.RecordBatch) -> None:
    """Raise InvalidRequestError (``source-not-append-only``) for a row that a commit did not insert."""
    others = pc.not_equal(batch["_change_type"], "insert")
    if pc.any(others).as_py():
        row = batch.filter(others).slice(0, 1).to_pylist()[0]
        change, version = row["_change_type"], row["_commit_version"]
        raise InvalidRequestError(
            f"table {read.table.place}: version {version} has a row with the change {change!r}: expected inserted rows "
            "only",
            kind="source-not-append-only",
            hint=f"write {read.source}.changes: _change_type, so that rows which are gone are taken back, or "
            f"{read.source}.delete_when",
        )
