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
"""Spark's own defaults; otherwise it may read something else than what is in a file."""
_NOT_THERE, _NO_FILES = "PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"
"""Spark's names of what it says of a path that does not exist, and of a directory without data files."""


def files_of_interval(
    spark: SparkSession, pipeline: Pipeline, data: str, interval: DataInterval, parallelism: int
) -> SourceFiles | None:
    """The files of [start, end) that each subtask is to read by itself; None if Spark is to read the source, as
    :func:`read_interval`."""
    locations = [part.path for part in source_parts(pipeline, data, interval)]
    reason = _why_spark(spark, pipeline.source.format, locations)
    if reason is not None:
        log_left_to_spark(reason)
        return None
    return source_files(pipeline, locations, parallelism)


def _why_spark(spark: SparkSession, format_: str, locations: Sequence[str]) -> str | None:
    """Why Spark is to read the source, whatever its files are; None if nothing of the kind speaks for it."""
    if format_ != "parquet":
        return f"its format is {format_}"
    elsewhere = [location for location in locations if not _is_of_this_host(spark, location)]
    if elsewhere:
        return f"{elsewhere[0]} is no path of this host"
    changed = [name for name, value in _AS_WRITTEN.items() if spark.conf.get(name) != value]
    return f"{', '.join(changed)} may change what is read" if changed else None


def _is_of_this_host(spark: SparkSession, location: str) -> bool:
    """A path without a scheme belongs to Spark's default file system."""
    default = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS", "file:")
    return location.startswith("file:") or (location.startswith("/") and default.startswith("file:"))


def read_interval(spark: SparkSession, pipeline: Pipeline, data: str, interval: DataInterval) -> DataFrame:
    """The events of [start, end): the declared columns, in their declared order and types.

    Raises InvalidRequestError: ``missing-column``, ``column-type``, ``unknown-format``; NotFoundError (``no-source``);
    RetryableError (``source-unreadable``).
    """
    if pipeline.source.format in FORMATS:
        register(spark)  # not in every session: Spark starts Python processes for it, some seconds of a small run
    found = [_read(spark, pipeline, part.path) for part in source_parts(pipeline, data, interval)]
    frames = [frame for frame in found if frame is not None]
    return reduce(DataFrame.unionAll, frames) if frames else _nothing(spark, pipeline)


def _read(spark: SparkSession, pipeline: Pipeline, path: str) -> DataFrame | None:
    """The events under one path; None where there are none, and the pipeline file says that this may be."""
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


def _nothing(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    columns = (f"`{name}` {SPARK_TYPES[str(kind)]}" for name, kind in pipeline.source.columns.items())
    return spark.createDataFrame([], ", ".join(columns))


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
