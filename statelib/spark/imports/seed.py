"""The seed of a pipeline from a table that exists: any table, view or directory that Spark can read."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os.path import abspath

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError, NotFoundError, RetryableError
from statelib.flows.wiring import Deployment
from statelib.model.record import CheckpointRecord
from statelib.spark.events.absent_columns import Used, check_files, merges_schemas
from statelib.spark.events.joined_records import check_joined_records
from statelib.spark.events.source import SourcePlaces, is_within_reach
from statelib.spark.events.source_columns import check_strict, checked_expression
from statelib.spark.events.source_open import strict_options
from statelib.spark.events.source_types import quoted
from statelib.spark.events.tables.incremental import TablePlace, whole_table
from statelib.spark.events.unread_files import check_all_files_are_read
from statelib.spark.imports.seed_columns import MappedTable, map_table
from statelib.spark.imports.seed_rows import DUPLICATE_KEY, EXAMPLES, PutRows, duplicates
from statelib.spark.session.either_kind import analysed
from statelib.spark.session.job_failures import MALFORMED_RECORD, naming_what_failed
from statelib.spark.snapshot.runs.whole_run import Step, seed_pipeline
from statelib.spark.snapshot.seed import Seed, SeedRows

_NO_SOURCE = "no-source"
_OTHER_FORMAT = (
    "the file is read as {0}; for another format add --format, such as '--format csv --option header=true'; write a "
    "damaged file again"
)
"""The hint on a file of a seed that cannot be read. It has a place for the format."""
_OPTION = "--option {}={}"
"""How users write a name and a value of Spark's options."""
_WITHOUT_CONNECTOR = ("delta", "iceberg")
_TIMES = "__statelib_times"
"""The column with the number of the rows of a key."""
_NAME_ROWS = ("dbtable", "query")
"""The options of Spark's reader that say which rows of a database are read. Values of others may be secret."""


@dataclass(frozen=True)
class SeedTable:
    """A table from which a pipeline begins. ``place``: the name of a table of Spark's catalog or, with a ``format``, a
    path. ``options``: options of Spark's reader. ``where``: a condition in SQL on its rows. ``mapping``: an SQL
    expression per column of the key, field of a state, or part of a field. ``without``: the states that begin
    empty."""

    place: str
    format: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    mapping: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return what decides the rows, without values that may be secret."""
        parts = [f"{name}={text}" for name, text in sorted(self.mapping.items())]
        for name, text in sorted(self.options.items()):
            parts.append(f"option {name}={text}" if name.lower() in _NAME_ROWS else f"option {name}")
        parts += [f"where {self.where}"] if self.where else []
        parts += [f"without {name}" for name in sorted(self.without)]
        return " ".join([self.place, *([self.format] if self.format else []), *parts])


def mapped_table(spark: SparkSession, deployment: Deployment, pipeline: Pipeline, table: SeedTable) -> MappedTable:
    """Return the rows of a table with the columns of the pipeline's key and states.

    Raises NotFoundError (``no-source``), RetryableError (``source-unreadable``), InvalidRequestError
    (``bad-expression``, ``malformed-record``, ``no-rows``, ``unread-files``; ``missing-column`` and ``column-type`` for
    files that differ), and as :func:`~statelib.spark.imports.seed_columns.map_table`."""
    check_strict(spark, pipeline, "--map")
    within_reach = is_within_reach(spark, table.place, SourcePlaces.of(deployment))
    check_all_files_are_read(
        spark, f"pipeline {pipeline.name}: {table.place}", table.place, table.options,
        file_format=table.format, within_reach=within_reach, option=_OPTION,
    )  # fmt: skip
    with _own_option():
        frame = _opened(spark, pipeline, table)
    if table.format.lower() == "json":
        check_joined_records(spark, pipeline.name, table.place, table.options, _OPTION)
    if table.where:
        frame = checked_expression(pipeline, "--where", table.where, frame, table.where, filters=True)
    with _own_option(), naming_what_failed():
        has_no_rows = frame.isEmpty()
    if has_no_rows:
        raise InvalidRequestError(
            f"pipeline {pipeline.name}: {table.place} has no rows" + (f" with {table.where}" if table.where else ""),
            kind="no-rows",
            hint="correct --from or --where; a pipeline that begins without state needs no seed, only schedule.start",
        )
    rows = map_table(frame, pipeline, table.mapping, table.without)
    if within_reach:
        used = Used([*(text for _, text in rows.expressions), table.where], merges_schemas(table.options))
        check_files(frame, table.format, used, table.place)
    return rows


def seed_from_table(
    spark: SparkSession,
    deployment: Deployment,
    pipeline: Pipeline,
    table: SeedTable,
    until_ms: int,
    *,
    owner: str,
    step: Step = lambda _name: None,
    mapped: MappedTable | None = None,
) -> tuple[CheckpointRecord, bool]:
    """Make a table with the events before ``until_ms`` the first checkpoint of a pipeline. Return its record and
    whether it was completed before this call. ``mapped``: the result of :func:`mapped_table`, if it is known.

    Raises as :func:`mapped_table` and :func:`~statelib.spark.snapshot.runs.whole_run.seed_pipeline`;
    InvalidRequestError (``duplicate-key``, ``null-key``, ``bad-accumulator``, ``bad-source-value``,
    ``malformed-record``)."""
    rows = mapped or mapped_table(spark, deployment, pipeline, table)
    seed = Seed(str(table), SeedRows(rows.frame, rows.columns, PutRows(rows.states)))
    try:
        with _own_option():
            return seed_pipeline(spark, deployment, pipeline, seed, until_ms, owner=owner, step=step)
    except InvalidRequestError as error:
        if error.kind != DUPLICATE_KEY:
            raise
        raise _all_duplicates(pipeline, rows) or error from error


@contextmanager
def _own_option() -> Iterator[None]:
    """Name the option of the command in the hint on a record that cannot be read. Others name that of a source."""
    try:
        yield
    except InvalidRequestError as error:
        if error.kind != MALFORMED_RECORD:
            raise
        hint = f"write the file again, or leave such records out with '{_OPTION.format('mode', 'DROPMALFORMED')}'"
        raise InvalidRequestError(error.message, kind=error.kind, hint=hint) from error


def _all_duplicates(pipeline: Pipeline, rows: MappedTable) -> InvalidRequestError | None:
    """Return the error that counts the repeated keys of the whole table, and not only those of one subtask."""
    keys = [f.col(quoted(name)) for name in pipeline.key]
    keyed = rows.frame.where(" AND ".join(f"{quoted(name)} IS NOT NULL" for name in pipeline.key))
    repeated = keyed.groupBy(*keys).agg(f.count("*").alias(_TIMES)).where(f"{_TIMES} > 1")
    total = repeated.agg(f.sum(f.col(_TIMES) - 1)).first()
    if total is None or not total[0]:
        return None
    examples = repeated.orderBy(f.desc(_TIMES)).drop(_TIMES).take(EXAMPLES)
    return duplicates(pipeline, int(total[0]), [tuple(row) if len(row) > 1 else row[0] for row in examples])


def _opened(spark: SparkSession, pipeline: Pipeline, table: SeedTable) -> DataFrame:
    """Return the rows of the table. Delta and Iceberg are read without Spark's connector if Spark has none."""
    reader = spark.read.options(**strict_options(table.format or "")).options(**table.options)
    try:
        with naming_what_failed():
            return analysed(
                reader.format(table.format).load(table.place) if table.format else reader.table(table.place)
            )
    except InvalidRequestError as error:
        if error.kind != "unknown-format" or table.format not in _WITHOUT_CONNECTOR:
            raise
        return _without_connector(spark, pipeline, table)
    except RetryableError as error:
        if error.kind != "source-unreadable":
            raise
        raise RetryableError(error.message, kind=error.kind, hint=_OTHER_FORMAT.format(table.format)) from error
    except (AnalysisException, PySparkException) as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise NotFoundError(f"there is no {table.place}", kind=_NO_SOURCE, hint="correct --from") from error
        raise _unreadable(table, str(error.getCondition() or error)) from error


def _without_connector(spark: SparkSession, pipeline: Pipeline, table: SeedTable) -> DataFrame:
    local = table.format == "delta" and "://" not in table.place
    place = TablePlace(table.format, abspath(table.place) if local else table.place, tuple(table.options.items()))
    try:
        rows = whole_table(spark, place, pipeline.parallelism)
    except NotFoundError as error:
        if error.kind != _NO_SOURCE:
            raise
        raise _unreadable(table, f"there is no table in the format {table.format}") from error
    if rows is None:
        raise _unreadable(table, "it has no rows, and never had any")
    return rows


def _unreadable(table: SeedTable, reason: str) -> NotFoundError:
    return NotFoundError(
        f"{'path' if table.format else 'table'} {table.place} cannot be read: {reason}",
        kind=_NO_SOURCE,
        hint="a name without / is a table of Spark's catalog; a path of another format needs --format, and a "
        "savepoint of Flink --operator",
    )
