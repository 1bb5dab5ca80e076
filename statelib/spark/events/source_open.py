"""Open one part of a source, a path, a table or a query, as a Spark DataFrame with the source's own columns."""

from collections.abc import Mapping

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from statelib.definition.source.parts import SourcePart
from statelib.definition.source.templates import with_variables
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.flows.wiring import source_variables
from statelib.spark.session.either_kind import analysed
from statelib.spark.session.job_failures import MALFORMED_RECORD, naming_what_failed

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
        if error.getCondition() == _NOT_THERE and source.on_missing == "empty":
            return None
        raise _no_source(pipeline, part, error.getCondition() or "", str(error)) from error
    if _is_read_without_files(part) and not source.may_be_empty and not frame.inputFiles():
        raise _no_source(pipeline, part, _NO_FILES)
    return frame


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


def _opened(spark: SparkSession, part: SourcePart) -> DataFrame:
    if part.table is not None:
        return spark.read.options(**options_of(part)).table(part.table)
    file_format = part.source.file_format
    strict = strict_options(file_format, part.source.time_zone)
    reader = spark.read.format(file_format).options(**strict).options(**options_of(part))
    if part.source.file_schema is not None:
        reader = reader.schema(part.source.file_schema)
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
