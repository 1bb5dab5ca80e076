"""Open one part of a source, a path, a table or a query, as a Spark DataFrame with the source's own columns."""

import contextlib
from collections.abc import Mapping
from urllib.parse import unquote

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from statelib.definition.parts.source import DATA_FORMATS
from statelib.definition.parts.types import type_of
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import SourcePart
from statelib.definition.source.templates import with_variables
from statelib.errors import InvalidRequestError, NotFoundError, UnsupportedError
from statelib.flows.wiring import source_variables
from statelib.model.path_patterns import directory_of_pattern, without_host
from statelib.spark.events.source_columns import check_strict
from statelib.spark.events.source_types import INSTANT, LOCAL, quoted, spark_name
from statelib.spark.session.either_kind import analysed
from statelib.spark.session.job_failures import MALFORMED_RECORD, naming_what_failed
from statelib.storage.registry import PLACES
from statelib.storage.source_listing import look_at_source

_NOT_THERE, _NO_FILES = "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"
"""Spark's error conditions for a path that does not exist, and for a directory without data files."""

_NANOSECONDS = (
    "Spark reads no times in nanoseconds, which pandas writes by default: write the files with "
    "to_parquet(coerce_timestamps='us'); or set spark.sql.legacy.parquet.nanosAsLong to true, and compute the column: "
    "{expr: timestamp_micros(at DIV 1000), type: instant}"
)

_STRICT: Mapping[str, Mapping[str, str]] = {
    "csv": {"mode": "FAILFAST", "columnPruning": "false", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
    "xml": {"mode": "FAILFAST"},
}
"""The options under which Spark fails on a record that it cannot read as a whole. By default it takes nulls for what
is missing, and the columns of CSV by their place even if the header of a file has another order."""

_GUESSED = "guessed"
"""In place of the type of a column that is left as Spark guesses it."""
_CAST = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean", "date", INSTANT)
"""The beginnings of the types to which the text of a directory is cast."""


def strict_options(file_format: str, time_zone: str | None = None) -> Mapping[str, str]:
    """Return the options for a format under which no record is lost or cut without an error, and times without a zone
    in texts are in ``time_zone``. Those of a database stay without a zone: by default, Spark takes them for times in
    the zone of its JVM. The options of the user come after them and have precedence."""
    if file_format.lower() == "jdbc":
        return {"preferTimestampNTZ": "true"}
    options = _STRICT.get(file_format.lower(), {})
    return {**options, "timeZone": time_zone} if options and time_zone else options


def open_part(spark: SparkSession, pipeline: str, part: SourcePart) -> DataFrame | None:
    """Return the rows of one part; None if there are no files and the pipeline file allows that.

    Raises NotFoundError (``no-source``), InvalidRequestError (``unknown-format``, ``no-variable``, ``bad-file-schema``,
    ``malformed-record``), RetryableError (``source-unreadable``)."""
    source = part.source
    try:
        with naming_what_failed():
            frame = analysed(_opened(spark, part))
    except InvalidRequestError as error:
        if error.kind == MALFORMED_RECORD:
            error.message = f"pipeline {pipeline}: {part.place}: {error.message}"
        raise
    except ParseException as error:
        raise InvalidRequestError(
            f"pipeline {pipeline}: {part.field}.file_schema: {str(error).strip().splitlines()[0]}",
            kind="bad-file-schema",
            hint="write the columns as Spark's CREATE TABLE takes them: payload STRUCT<op: STRING, ts_ms: BIGINT>",
        ) from error
    except AnalysisException as error:
        if error.getCondition() == _NO_FILES and source.may_be_empty:
            return None
        if error.getCondition() == _NOT_THERE and (source.on_missing == "empty" or _has_no_match(part)):
            return None
        raise _no_source(pipeline, part, error.getCondition() or "", str(error)) from error
    if _is_read_without_files(part) and not source.may_be_empty and not frame.inputFiles():
        raise _no_source(pipeline, part, _NO_FILES)
    return frame


def _has_no_match(part: SourcePart) -> bool:
    """Return whether the path is a pattern that no file matches, its directory exists, and the interval may be
    empty."""
    directory = directory_of_pattern(part.path or "")
    if directory is None or not part.source.may_be_empty:
        return False
    with contextlib.suppress(UnsupportedError):
        return look_at_source(directory, PLACES).exists
    return False


def _is_read_without_files(part: SourcePart) -> bool:
    """Return whether Spark needs no file to know the columns, and therefore reads a directory without files."""
    return part.path is not None and (part.source.file_schema is not None or part.source.file_format.lower() == "text")


def _no_source(pipeline: str, part: SourcePart, condition: str, message: str = "") -> NotFoundError:
    """Return the error for a source that Spark cannot open, by Spark's condition and message."""
    reason, hint = condition, ""
    if part.table is not None:
        hint = (
            f"Spark must know the table under this name: check {part.field}.table, and the catalogs in Spark's "
            "configuration"
        )
    elif reason in (_NOT_THERE, _NO_FILES):
        hint = (
            "an interval without events needs an empty file with the declared columns, or 'on_missing: empty' in "
            "the pipeline file's source"
        )
    else:
        reason, hint = message.strip().splitlines()[0], _NANOSECONDS if condition == "PARQUET_TYPE_ILLEGAL" else ""
    return NotFoundError(
        f"pipeline {pipeline}: source {part.place} cannot be read: {reason}", kind="no-source", hint=hint
    )


def typed_partitions(spark: SparkSession, pipeline: Pipeline, part: SourcePart, frame: DataFrame) -> DataFrame:
    """Return the rows of one part, in which columns of the path, as in ``shop=01``, are texts, dates, or of the type
    that the pipeline file declares. Others are left to ``file_schema``.

    Spark guesses a type from the values of one interval: a day with ``01`` and ``2`` would have the key 1, the next day
    with ``01`` and ``A7`` the key 01.

    Raises InvalidRequestError (``bad-expression``) if Spark would turn a value of another type into a null."""
    wanted = _partition_types(part, frame)
    texts = t.StructType([
        t.StructField(field.name, t.StringType()) if field.name in wanted and wanted[field.name] != _GUESSED else field
        for field in frame.schema
    ])  # fmt: skip
    if texts != frame.schema:
        frame = analysed(_opened(spark, part, texts))
    casts = {name: type_ for name, type_ in wanted.items() if type_ not in (_GUESSED, "string")}
    if not casts:
        return frame
    check_strict(spark, pipeline, f"{part.field}.columns")
    expressions = {name: quoted(name) for name in frame.columns}
    expressions |= {name: f"CAST({quoted(name)} AS {type_}) AS {quoted(name)}" for name, type_ in casts.items()}
    return frame.selectExpr(*expressions.values())


def _partition_types(part: SourcePart, frame: DataFrame) -> dict[str, str]:
    """Return the type of each column of the path: the declared one, :data:`_GUESSED` if all values are dates, whose
    texts come back unchanged, otherwise ``string``."""
    source, types = part.source, {}
    for name, guessed in frame.dtypes if _has_guessed_partitions(part) else ():
        column = source.columns.get(name)
        declared = spark_name(type_of(column.type)) if column is not None and column.expr is None else ""
        declared = LOCAL if declared == INSTANT and source.time_zone else declared
        is_date = guessed == "date" and declared in ("", "date")
        types[name] = _GUESSED if is_date else declared if declared.startswith(_CAST) else "string"
    in_path = _names_in_paths(part, frame) if types else set()
    return {name: type_ for name, type_ in types.items() if name.lower() in in_path}


def _has_guessed_partitions(part: SourcePart) -> bool:
    """Return whether Spark guesses the types of columns of the path: not of a list of all files below it."""
    if part.path is None or part.source.file_schema is not None or part.source.file_format.lower() not in DATA_FORMATS:
        return False
    return not any(name.lower() == "recursivefilelookup" and text.lower() == "true" for name, text in part.options)


def _names_in_paths(part: SourcePart, frame: DataFrame) -> set[str]:
    """Return the names, in small letters, of the directories ``name=value`` between the path and its files."""
    bases = [text for name, text in part.options if name.lower() == "basepath"]
    above = len(_steps(bases[0] if bases else str(part.path)))
    directories = {uri.rpartition("/")[0] for uri in frame.inputFiles()}
    steps = (step for directory in directories for step in _steps(directory)[above:] if "=" in step)
    return {unquote(step.partition("=")[0]).lower() for step in steps}


def _steps(location: str) -> list[str]:
    """Return the names in a path or URI, without its scheme and host."""
    return [step for step in without_host(location).split("/") if step]


def _opened(spark: SparkSession, part: SourcePart, schema: t.StructType | str | None = None) -> DataFrame:
    if part.table is not None:
        return spark.read.options(**options_of(part)).table(part.table)
    file_format = part.source.file_format
    strict = strict_options(file_format, part.source.time_zone)
    reader = spark.read.format(file_format).options(**strict).options(**options_of(part))
    schema = schema or part.source.file_schema
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load() if part.path is None else reader.load(part.path)


def options_of(part: SourcePart) -> dict[str, str]:
    """Return the options of one part with the values of the variables that they name.

    Raises InvalidRequestError (``no-variable``)."""
    options = {}
    for name, text in part.options:
        try:
            options[name] = with_variables(text, source_variables())
        except KeyError as error:
            raise InvalidRequestError(
                f"{part.field}.options.{name}: the Spark driver's environment has no variable {error.args[0]}",
                kind="no-variable",
                hint="set it where the driver runs, such as in Airflow's worker or in spark.kubernetes.driverEnv",
            ) from None
    return options
