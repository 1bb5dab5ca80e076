"""A source of Parquet files that every subtask reads by itself, taking the events that it owns: nothing is moved.

Moving an event through Spark's shuffle and over to Python costs several times what reading it costs (PERFORMANCE.md).
So where subtasks are few, or events are, each of them reads all files. What is read must be what Spark would have read:
files of which that is not plain from their names and footers are left to Spark, errors about them too.
"""

import logging
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statelib.definition.columns import event_schema
from statelib.definition.model import Source
from statelib.definition.pipeline import Pipeline
from statelib.errors import RetryableError
from statelib.spark.events.owners import owners_of
from statelib.spark.events.source_types import SPARK_TYPES, is_read_as
from statelib.wire.checksum import xxh3

READERS = 8
"""So many subtasks may each read whatever there is: together they take no longer than a shuffle would."""
ROWS = 2_000_000
"""So many rows all subtasks together may always read: no longer than Spark takes to plan a shuffle and start it."""
MOST_FILES = 100
_BATCH_ROWS = 1 << 17

_PLAIN = re.compile(r"(?:file:(?://)?)?(/(?!/)[^%*?\[\]{}\\]*)")
"""Neither a pattern, nor escaped, nor relative."""
_NAMES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.large_string(): "string",
    pa.binary(): "binary", pa.large_binary(): "binary", pa.date32(): "date",
    pa.timestamp("ms"): "timestamp_ntz", pa.timestamp("us"): "timestamp_ntz",
}  # fmt: skip
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_WRITER = b"org.apache.spark.version"

log = logging.getLogger(__name__)


class _LeftToSparkError(Exception):
    """Why a source is for Spark to read."""


@dataclass(frozen=True)
class SourceFile:
    """``footer``: XXH3 of it, by which a file that was written again is told."""

    path: str
    rows: int
    footer: int


@dataclass(frozen=True)
class SourceFiles:
    """The files of one interval as the driver found them. Picklable."""

    files: tuple[SourceFile, ...]

    @property
    def rows(self) -> int:
        """How many events the source has."""
        return sum(file.rows for file in self.files)


def source_files(pipeline: Pipeline, locations: Sequence[str], parallelism: int) -> SourceFiles | None:
    """What the subtasks may read by themselves; None if Spark is to read it. ``locations``: paths of this host."""
    try:
        paths = [path for location in locations for path in _paths(location, pipeline.source)]
        if len(paths) > MOST_FILES:
            raise _LeftToSparkError(f"{len(paths)} files")
        found = SourceFiles(tuple(_found(pipeline, path) for path in paths))
        if parallelism > READERS and parallelism * found.rows > ROWS:
            raise _LeftToSparkError(f"{found.rows} rows are too many for each of {parallelism} subtasks to read")
    except _LeftToSparkError as reason:
        log_left_to_spark(str(reason))
        return None
    log.info("each subtask reads the source: %d files, %d rows", len(found.files), found.rows)
    return found


def log_left_to_spark(reason: str) -> None:
    log.info("Spark reads the source and moves its events: %s", reason)


def own_events(pipeline: Pipeline, source: SourceFiles, subtask: int, parallelism: int) -> pa.Table:
    """The events of a subtask, in the declared columns and types.

    Raises RetryableError: ``source-changed`` (a file is not the one that the driver found), ``source-unreadable``."""
    wanted = event_schema(pipeline)
    owners = owners_of(pipeline, parallelism)

    def own(batch: pa.RecordBatch) -> pa.RecordBatch:
        if parallelism > 1:
            batch = batch.filter(pc.equal(owners(*(batch[name] for name in pipeline.key)), subtask))
        return batch.select(wanted.names).cast(wanted)

    batches = [own(batch) for file in source.files for batch in _batches(file, wanted.names)]
    return pa.Table.from_batches(batches, wanted).combine_chunks()


def _batches(found: SourceFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(found.path, coerce_int96_timestamp_unit="us") as file:
            _check_unchanged(found, file)
            yield from file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise RetryableError(
            f"source file {found.path} cannot be read: {error}",
            kind="source-unreadable",
            hint="the path must lead to the same files on every host; write a damaged one again; then run again",
        ) from error


def _check_unchanged(found: SourceFile, file: pq.ParquetFile) -> None:
    if _hash(file) != found.footer:
        raise RetryableError(
            f"source file {found.path} was written again while the interval was read",
            kind="source-changed",
            hint="write an interval's files before its run; run again, it reads what is there then",
        )


def _hash(file: pq.ParquetFile) -> int:
    return xxh3(pickle.dumps(file.metadata))


def _paths(location: str, source: Source) -> list[str]:
    """The data files of a file or of a flat directory, as Spark lists them; none of one that may be empty."""
    match = _PLAIN.fullmatch(location)
    if match is None:
        raise _LeftToSparkError(f"{location} is no plain path")
    path = Path(match[1])
    if not path.exists() and source.on_missing == "empty":
        return []
    try:
        entries = sorted(path.iterdir()) if path.is_dir() else [path]
        # Of partitions, and of a log that says which files count, a directory tells.
        if any(entry.is_dir() for entry in entries):
            raise _LeftToSparkError("a directory within the source")
        files = [str(entry) for entry in entries if not _is_hidden(entry.name)]
    except OSError as error:
        raise _LeftToSparkError(str(error)) from error
    if not files and not source.may_be_empty:
        raise _LeftToSparkError(f"{location} has no files")
    return files


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", ".")) or name.endswith("._COPYING_")


def _found(pipeline: Pipeline, path: str) -> SourceFile:
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(pipeline, path, file)
            return SourceFile(path, file.metadata.num_rows, _hash(file))
    except (OSError, pa.ArrowException) as error:
        raise _LeftToSparkError(f"{path}: {error}") from error


def _check_columns(pipeline: Pipeline, path: str, file: pq.ParquetFile) -> None:
    told = file.metadata.metadata or {}
    if any(name in told for name in _OLD_CALENDAR) or told.get(_WRITER, b"3").startswith((b"1.", b"2.")):
        raise _LeftToSparkError(f"{path} has days of the old calendar")
    schema = file.schema_arrow
    flat = {column.path: column.physical_type for column in map(file.schema.column, range(len(file.schema)))}
    for name, declared in pipeline.source.columns.items():
        if schema.names.count(name) != 1:
            raise _LeftToSparkError(f"{path} has no column {name}")
        actual = "timestamp" if flat.get(name) == "INT96" else _spark_type(schema.field(name).type)
        if not is_read_as(actual, SPARK_TYPES[str(declared)]):
            raise _LeftToSparkError(f"{path}: column {name} is {schema.field(name).type}")


def _spark_type(found: pa.DataType) -> str:
    """What Spark calls a column of a Parquet file of this type; nothing where its answer is not plain."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_timestamp(found) and found.tz is not None and found.unit in ("ms", "us"):
        return "timestamp"
    return _NAMES.get(found, "")
