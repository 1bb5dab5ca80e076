"""Read one data interval of a pipeline's source as a Spark DataFrame with the declared columns."""

from datetime import UTC, datetime

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.model.checkpoint import DataInterval
from statelib.spark import FORMATS, register
from statelib.spark.source_files import SourceFiles, log_left_to_spark, source_files
from statelib.spark.source_types import SPARK_TYPES, is_read_as

_AS_WRITTEN = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
}
"""Spark's own defaults; otherwise it may read something else than what is in a file."""


def files_of_interval(
    spark: SparkSession, pipeline: Pipeline, data: str, interval: DataInterval, parallelism: int
) -> SourceFiles | None:
    """The files of [start, end) that each subtask is to read by itself; None if Spark is to read the source, as
    :func:`read_interval`."""
    location = _location(pipeline, data, interval)
    reason = _why_spark(spark, pipeline.source.format, location)
    if reason is not None:
        log_left_to_spark(reason)
        return None
    return source_files(pipeline, location, parallelism)


def _why_spark(spark: SparkSession, format_: str, location: str) -> str | None:
    """Why Spark is to read the source, whatever its files are; None if nothing of the kind speaks for it."""
    if format_ != "parquet":
        return f"its format is {format_}"
    if not _is_of_this_host(spark, location):
        return f"{location} is no path of this host"
    changed = [name for name, value in _AS_WRITTEN.items() if spark.conf.get(name) != value]
    return f"{', '.join(changed)} may change what is read" if changed else None


def _is_of_this_host(spark: SparkSession, location: str) -> bool:
    """A path without a scheme belongs to Spark's default file system."""
    default = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS", "file:")
    return location.startswith("file:") or (location.startswith("/") and default.startswith("file:"))


def read_interval(spark: SparkSession, pipeline: Pipeline, data: str, interval: DataInterval) -> DataFrame:
    """The events of [start, end): the declared columns, in their declared order and types.

    Raises InvalidRequestError: ``missing-column``, ``column-type``.
    """
    source = pipeline.source
    path = _location(pipeline, data, interval)
    if source.format in FORMATS:
        register(spark)  # not in every session: Spark starts Python processes for it, some seconds of a small run
    try:
        frame = spark.read.format(source.format).load(path)
    except AnalysisException as error:
        raise NotFoundError(
            f"pipeline {pipeline.name}: source {path} cannot be read: {error.getCondition()}",
            kind="no-source",
            hint="an interval without events needs an empty file with the declared columns",
        ) from error
    found = {field.name: field.dataType for field in frame.schema.fields}
    missing = [name for name in source.columns if name not in found]
    if missing:
        raise InvalidRequestError(
            f"pipeline {pipeline.name}: source {path} has no column {', '.join(missing)}; it has {', '.join(found)}",
            kind="missing-column",
            hint="correct source.columns in the pipeline file",
        )
    columns = [_column(pipeline, path, name, str(kind), found[name]) for name, kind in source.columns.items()]
    return frame.selectExpr(*columns)


def _column(pipeline: Pipeline, path: str, name: str, declared: str, found: DataType) -> str:
    """In SQL, which costs one call to the JVM for all columns."""
    wanted, actual = SPARK_TYPES[declared], found.simpleString()
    column = f"`{name}`"
    if is_read_as(actual, wanted):
        return column if actual == wanted else f"CAST({column} AS {wanted}) AS {column}"
    raise InvalidRequestError(
        f"pipeline {pipeline.name}: column {name} of {path} is {actual}, source.columns declares {declared} "
        f"({wanted} in Spark)",
        kind="column-type",
        hint="correct source.columns in the pipeline file",
    )


def _location(pipeline: Pipeline, data: str, interval: DataInterval) -> str:
    return pipeline.source.location(data, _utc(interval.start_ms), _utc(interval.end_ms))


def _utc(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
