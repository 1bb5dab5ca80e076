"""Read one data interval of a pipeline's source as a Spark DataFrame with the declared columns."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from statelib.definition.parts.source import Source
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import SourcePart, source_parts
from statelib.definition.source.readiness import ready_rules
from statelib.errors import NotFoundError
from statelib.flows.wiring import Deployment, source_variables
from statelib.model.checkpoint import DataInterval
from statelib.model.path_patterns import split_pattern
from statelib.spark import FORMATS, register
from statelib.spark.events.absent_columns import check_files_read_by_spark
from statelib.spark.events.joined_records import check_joined_records
from statelib.spark.events.source_columns import events_of, no_events
from statelib.spark.events.source_files import SourceFiles, log_left_to_spark, source_files
from statelib.spark.events.source_open import open_part, options_of, strict_options, typed_partitions
from statelib.spark.events.source_paths import in_bucket
from statelib.spark.events.tables.incremental import TableReads, read_table
from statelib.spark.events.unread_files import check_all_files_are_read, check_units_are_read
from statelib.spark.session.either_kind import default_file_system, hadoop_setting
from statelib.storage.objects.uris import location_if_object, object_location
from statelib.storage.uris import local_path

_AMAZON = re.compile(r"(?:https://)?s3[.-].*amazonaws\.com")
"""An endpoint of Amazon itself, which is used if none is named."""
_AS_WRITTEN = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
}
"""The Spark settings, with their default values, under which Spark reads the values of a file unchanged."""


@dataclass(frozen=True)
class SourcePlaces:
    """The places that decide who reads a source. ``data``: the root of the data. ``root``: the root of the checkpoints.
    ``endpoint``: the endpoint of S3 in the environment, '' if there is none."""

    data: str
    root: str
    endpoint: str = ""

    @classmethod
    def of(cls, deployment: Deployment) -> "SourcePlaces":
        """Return the places of a deployment in this process."""
        return cls(deployment.data, deployment.root_uri(), endpoint_of_sources())


def endpoint_of_sources() -> str:
    """Return the endpoint of S3 in the environment of this process, '' if there is none."""
    return source_variables().get("AWS_ENDPOINT_URL", "")


def files_of_interval(
    spark: SparkSession, pipeline: Pipeline, places: SourcePlaces, interval: DataInterval, parallelism: int
) -> SourceFiles | None:
    """Return the files of the interval [start, end) in the sources that each subtask can read itself; None if Spark
    must read every source with :func:`read_interval`. ``parallelism``: the number of subtasks. Raises as it."""
    parts = source_parts(pipeline, places.data, interval)
    _check_data(spark, pipeline, parts, places.data)
    locations: dict[str, list[str]] = {}
    for field, source in pipeline.inputs.items():
        paths = [part.path for part in parts if part.field == field and part.path is not None]
        reason = _reason_for_spark(spark, source, paths, places)
        if reason is None:
            locations[field] = paths
        else:
            log_left_to_spark(field, reason)
    check_units_are_read(pipeline, [part for part in parts if part.field in locations], places.data)
    return source_files(pipeline, locations, parallelism) if locations else None


def _check_data(spark: SparkSession, pipeline: Pipeline, parts: Sequence[SourcePart], data: str) -> None:
    """Raise NotFoundError (``no-source``) if a path may be missing, and not even the directory of the data is there.
    Each interval would be empty, and would never be read again."""
    fields = [p.field for p in parts if p.source.on_missing == "empty" and (p.path or "").startswith(data)]
    if fields and _is_of_this_host(spark, data) and not Path(local_path(data)).exists():
        raise NotFoundError(
            f"pipeline {pipeline.name}: {fields[0]}: the directory of the data does not exist: {data}",
            kind="no-source",
            hint="correct STATELIB_DATA, or mount the directory; 'on_missing: empty' is for what is missing in it",
        )


def _reason_for_spark(
    spark: SparkSession, source: Source, locations: Sequence[str], places: SourcePlaces
) -> str | None:
    """Return why Spark must read the source, by its definition, locations and settings; None if there is no reason."""
    if source.path is None or source.file_format != "parquet":
        return f"it is table {source.table}" if source.table else f"its format is {source.file_format}"
    if (
        source.options
        or source.file_schema
        or source.each
        or source.where
        or source.delete_when
        or source.changes
        or any(column.expr for column in source.columns.values())
    ):
        return "it has options, a schema of its files, conditions or expressions"
    for location in locations:
        if not _is_of_this_host(spark, location) and (reason := _reason_for_bucket(spark, location, places)):
            return reason
    changed = [name for name, value in _AS_WRITTEN.items() if spark.conf.get(name) != value]
    return f"{', '.join(changed)} may change what is read" if changed else None


def _is_of_this_host(spark: SparkSession, location: str) -> bool:
    """Return whether the location is a local path. A path without a scheme belongs to Spark's default file system."""
    if location.startswith("/"):
        return default_file_system(spark).startswith("file:")
    return location.startswith("file:")


def _reason_for_bucket(spark: SparkSession, location: str, places: SourcePlaces) -> str | None:
    """Return why Spark must read a location that is not a path of this host; None if it is in a bucket that the
    subtasks reach in the same way as Spark.

    Subtasks have the credentials and the endpoint of the checkpoints, from the environment. So the source must be in
    the same kind of storage, and Spark must not have been given an endpoint of its own."""
    uri = in_bucket(location)
    if uri is None:
        return f"{location} is neither a path of this host nor in a bucket"
    checkpoints = location_if_object(places.root)
    place = object_location(split_pattern(uri)[0])
    if checkpoints is None or checkpoints.scheme != place.scheme:
        return f"subtasks have no credentials for {place.scheme}:, because checkpoints are not stored there"
    if place.scheme == "s3" and not _has_same_endpoint(spark, location, place.bucket, places.endpoint):
        return "Spark has another endpoint of S3 than the subtasks (fs.s3a.endpoint, AWS_ENDPOINT_URL)"
    return None


def _has_same_endpoint(spark: SparkSession, location: str, bucket: str, endpoint: str) -> bool:
    """Return whether Spark reads a bucket of S3 at the endpoint that the environment names. So it does if it cannot
    read ``s3:`` at all, which only some distributions of Spark can."""
    if location.lower().startswith("s3:") and not hadoop_setting(spark, "fs.s3.impl"):
        return True
    own = hadoop_setting(spark, f"fs.s3a.bucket.{bucket}.endpoint") or hadoop_setting(spark, "fs.s3a.endpoint")
    ends = [re.sub(_AMAZON, "", text.lower().rstrip("/")) for text in (own, endpoint)]
    return ends[0].removeprefix("http://") == ends[1].removeprefix("http://")


def read_interval(
    spark: SparkSession,
    pipeline: Pipeline,
    places: SourcePlaces,
    interval: DataInterval,
    *,
    reads: TableReads | None = None,
    without: Collection[str] = (),
) -> DataFrame:
    """Return the events of the interval [start, end) with the declared columns, in their declared order and types.
    ``reads``: what is read of the incremental sources; None if there are none. ``without``: the fields of the sources
    that are not read here.

    Raises InvalidRequestError: ``missing-column``, ``column-type``, ``unknown-format``, ``bad-expression``,
    ``source-finer-than-interval``;
    NotFoundError (``no-source``); RetryableError (``source-unreadable``).
    """
    parts = [part for part in source_parts(pipeline, places.data, interval) if part.field not in without]
    _check_data(spark, pipeline, parts, places.data)
    check_units_are_read(pipeline, parts, places.data)
    if any(part.source.file_format in FORMATS for part in parts):
        register(spark)  # only if needed: Spark starts Python processes for it, which takes some seconds
    frames = [frame for part in parts if (frame := _read(spark, pipeline, part, places, reads)) is not None]
    return reduce(DataFrame.unionAll, frames) if frames else no_events(spark, pipeline)


def _read(
    spark: SparkSession, pipeline: Pipeline, part: SourcePart, places: SourcePlaces, reads: TableReads | None
) -> DataFrame | None:
    """Return the events of one part of the interval; None if there are no files and the pipeline file allows that."""
    if part.source.incremental:
        if reads is None:
            raise ValueError(f"{part.field} is incremental: expected what is read of it")
        frame = read_table(spark, pipeline, part, reads)
    else:
        _check_all_files_are_read(spark, pipeline, part, places)
        frame = open_part(spark, pipeline.name, part)
        frame = None if frame is None else typed_partitions(spark, pipeline, part, frame)
        if frame is not None and part.path is not None and part.source.file_format.lower() == "json":
            check_joined_records(spark, pipeline.name, part.path, options_of(part))
        if frame is not None and part.path is not None and is_within_reach(spark, part.path, places):
            check_files_read_by_spark(part, frame)
    return None if frame is None else events_of(spark, pipeline, part, frame)


def _check_all_files_are_read(spark: SparkSession, pipeline: Pipeline, part: SourcePart, places: SourcePlaces) -> None:
    """Raise InvalidRequestError (``unread-files``) if Spark would leave out a file below the path of the part, other
    than the marker of the interval."""
    if part.path is None:
        return
    rules = ready_rules(pipeline, places.data, part.interval)
    markers = [each.marker for rule in rules if rule.source == part.name for each in rule.parts]
    options = {**strict_options(part.source.file_format, part.source.time_zone), **options_of(part)}
    check_all_files_are_read(
        spark, f"pipeline {pipeline.name}: source {part.place}", part.path, options,
        file_format=part.source.file_format, marker=next(filter(None, markers), ""),
        within_reach=is_within_reach(spark, part.path, places),
    )  # fmt: skip


def is_within_reach(spark: SparkSession, path: str, places: SourcePlaces) -> bool:
    """Return whether this process can read the files of a path or URI in the same way as Spark."""
    return _is_of_this_host(spark, path) or _reason_for_bucket(spark, path, places) is None
