"""Read one data interval of a pipeline's source as a Spark DataFrame with the declared columns."""

from collections.abc import Sequence
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import source_parts
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.model.checkpoint import DataInterval
from statelib.spark import FORMATS, register
from statelib.spark.events.source_files import SourceFiles, log_left_to_spark, source_files
from statelib.spark.events.source_types import SPARK_TYPES, is_read_as
from statelib.spark.session.job_failures import naming_what_failed

_AS_WRITTEN = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
}
"""The Spark settings, with their default values, under which Spark reads the values of a file unchanged."""
_NOT_THERE, _NO_FILES = "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"
"""Spark's error conditions for a path that does not exist, and for a directory without data files."""


def files_of_interval(
    spark: SparkSession, pipeline: Pipeline, data: str, interval: DataInterval, parallelism: int
) -> SourceFiles | None:
    """Return the files of the interval [start, end) if each subtask can read them itself; None if Spark must read the
    source with :func:`read_interval`. ``data``: the root of the data. ``parallelism``: the number of subtasks."""
    locations = [part.path for part in source_parts(pipeline, data, interval)]
    reason = _reason_for_spark(spark, pipeline.source.format, locations)
    if reason is not None:
        log_left_to_spark(reason)
        return None
    return source_files(pipeline, locations, parallelism)


def _reason_for_spark(spark: SparkSession, format_: str, locations: Sequence[str]) -> str | None:
    """Return why Spark must read the source, by its format, locations and settings; None if there is no such reason."""
    if format_ != "parquet":
        return f"its format is {format_}"
    elsewhere = [location for location in locations if not _is_of_this_host(spark, location)]
    if elsewhere:
        return f"{elsewhere[0]} is no path of this host"
    changed = [name for name, value in _AS_WRITTEN.items() if spark.conf.get(name) != value]
    return f"{', '.join(changed)} may change what is read" if changed else None


def _is_of_this_host(spark: SparkSession, location: str) -> bool:
    """Return whether the location is a local path. A path without a scheme belongs to Spark's default file system."""
    default = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS", "file:")
    return location.startswith("file:") or (location.startswith("/") and default.startswith("file:"))


def read_interval(spark: SparkSession, pipeline: Pipeline, data: str, interval: DataInterval) -> DataFrame:
    """Return the events of the interval [start, end) with the declared columns, in their declared order and types.

    Raises InvalidRequestError: ``missing-column``, ``column-type``, ``unknown-format``; NotFoundError (``no-source``);
    RetryableError (``source-unreadable``).
    """
    if pipeline.source.format in FORMATS:
        register(spark)  # only if needed: Spark starts Python processes for it, which takes some seconds
    read = [_read(spark, pipeline, part.path) for part in source_parts(pipeline, data, interval)]
    frames = [frame for frame in read if frame is not None]
    return reduce(DataFrame.unionAll, frames) if frames else _no_events(spark, pipeline)


def _read(spark: SparkSession, pipeline: Pipeline, path: str) -> DataFrame | None:
    """Return the events under one path; None if there are no files and the pipeline file allows that."""
    source = pipeline.source
    try:
        with naming_what_failed():
            frame = spark.read.format(source.format).load(path)
    except AnalysisException as error:
        if error.getCondition() == _NO_FILES and source.may_be_empty:
            return None
        if error.getCondition() == _NOT_THERE and source.on_missing == "empty":
            return None
        raise NotFoundError(
            f"pipeline {pipeline.name}: source {path} cannot be read: {error.getCondition()}",
            kind="no-source",
            hint="an interval without events needs an empty file with the declared columns, "
            "or 'on_missing: empty' in the pipeline file's source",
        ) from error
    actual = {field.name: field.dataType for field in frame.schema.fields}
    missing = [name for name in source.columns if name not in actual]
    if missing:
        raise InvalidRequestError(
            f"pipeline {pipeline.name}: source {path} has no column {', '.join(missing)}; it has {', '.join(actual)}",
            kind="missing-column",
            hint="correct source.columns in the pipeline file",
        )
    columns = [_column(pipeline, path, name, str(kind), actual[name]) for name, kind in source.columns.items()]
    return frame.selectExpr(*columns)


def _no_events(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    columns = (f"`{name}` {SPARK_TYPES[str(kind)]}" for name, kind in pipeline.source.columns.items())
    return spark.createDataFrame([], ", ".join(columns))


def _column(pipeline: Pipeline, path: str, name: str, declared: str, type_: DataType) -> str:
    """Return the SQL expression for a column in its declared type. Expressions in SQL need one JVM call for all
    columns.

    Raises InvalidRequestError (``column-type``)."""
    wanted, actual = SPARK_TYPES[declared], type_.simpleString()
    column = f"`{name}`"
    if is_read_as(actual, wanted):
        return column if actual == wanted else f"CAST({column} AS {wanted}) AS {column}"
    raise InvalidRequestError(
        f"pipeline {pipeline.name}: column {name} of {path} is {actual}, source.columns declares {declared} "
        f"({wanted} in Spark)",
        kind="column-type",
        hint="correct source.columns in the pipeline file",
    )
