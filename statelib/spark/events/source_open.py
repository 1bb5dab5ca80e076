"""Open one part of a source, a path, a table or a query, as a Spark DataFrame with the source's own columns."""

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from statelib.definition.source.parts import SourcePart
from statelib.definition.source.templates import with_variables
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.flows.wiring import source_variables
from statelib.spark.session.either_kind import analysed
from statelib.spark.session.job_failures import naming_what_failed

_NOT_THERE, _NO_FILES = "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"
"""Spark's error conditions for a path that does not exist, and for a directory without data files."""


def open_part(spark: SparkSession, pipeline: str, part: SourcePart) -> DataFrame | None:
    """Return the rows of one part; None if there are no files and the pipeline file allows that.

    Raises NotFoundError (``no-source``), InvalidRequestError (``unknown-format``, ``no-variable``), RetryableError
    (``source-unreadable``)."""
    source = part.source
    try:
        with naming_what_failed():
            return analysed(_opened(spark, part))
    except AnalysisException as error:
        if error.getCondition() == _NO_FILES and source.may_be_empty:
            return None
        if error.getCondition() == _NOT_THERE and source.on_missing == "empty":
            return None
        hint = (
            f"Spark must know the table under this name: check {part.field}.table, and the catalogs in Spark's "
            "configuration"
            if part.table is not None
            else "an interval without events needs an empty file with the declared columns, or 'on_missing: empty' in "
            "the pipeline file's source"
        )
        raise NotFoundError(
            f"pipeline {pipeline}: source {part.place} cannot be read: {error.getCondition()}",
            kind="no-source",
            hint=hint,
        ) from error


def _opened(spark: SparkSession, part: SourcePart) -> DataFrame:
    reader = spark.read.options(**options_of(part))
    if part.table is not None:
        return reader.table(part.table)
    reader = reader.format(part.source.file_format)
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
