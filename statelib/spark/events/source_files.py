"""Sources of Parquet files that each subtask reads itself, in a directory or a bucket. It keeps the events that it
owns, so no shuffle is needed.

To move an event through Spark's shuffle to Python costs several times as much as to read it (PERFORMANCE.md). If there
are few subtasks or few events, each subtask therefore reads all files. The events must be the same as those that Spark
would read. If the names and footers of the files do not guarantee that, Spark reads them and reports errors in them.
"""

import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statelib.definition.columns import as_declared, event_schema
from statelib.definition.pipeline import Pipeline
from statelib.errors import NotFoundError, RetryableError, StatelibError
from statelib.model.types import StateType
from statelib.spark.events.absent_columns import AT_ONCE, absent, without_columns
from statelib.spark.events.owners import owners_of
from statelib.spark.events.source_paths import LeftToSparkError, data_files, open_file
from statelib.spark.events.source_types import is_read_as, parquet_type, spark_name
from statelib.storage.objects.uris import location_if_object
from statelib.wire.checksum import xxh3

READERS = 8
"""The most subtasks that may each read all files, whatever the number of events. Together they need no longer than a
shuffle."""
ROWS = 2_000_000
"""The most rows that all subtasks together may read, whatever their number. This takes no longer than Spark needs to
plan and start a shuffle."""
MOST_FILES = 1000
"""The most files of a source that subtasks may read themselves. A small file costs each of them half a millisecond."""
_BATCH_ROWS = 1 << 17

_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_WRITER = b"org.apache.spark.version"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceFile:
    """A Parquet file of a source. ``source``: the source's field in the pipeline file. ``path``: its path, or the URI
    of an object. ``rows``: the number of its rows. ``footer``: the XXH3 hash of its footer, which differs if the file
    is written again."""

    source: str
    path: str
    rows: int
    footer: int


@dataclass(frozen=True)
class SourceFiles:
    """The files of one interval, as the driver has listed them. ``sources``: the fields of the sources that consist of
    these files; Spark must read the others. The object can be pickled."""

    files: tuple[SourceFile, ...]
    sources: tuple[str, ...]

    @property
    def rows(self) -> int:
        """The number of events in the files."""
        return sum(file.rows for file in self.files)


def source_files(pipeline: Pipeline, locations: Mapping[str, Sequence[str]], parallelism: int) -> SourceFiles | None:
    """Return the files that each subtask can read itself; None if Spark must read every source. Raises
    InvalidRequestError (``missing-column``) for a file without a declared column.

    ``locations``: local paths, or URIs of buckets, by the field of their source. ``parallelism``: the number of
    subtasks."""
    by_source: dict[str, list[SourceFile]] = {}
    for field, paths in locations.items():
        try:
            by_source[field] = _files_of(pipeline, field, paths)
        except LeftToSparkError as reason:
            log_left_to_spark(field, str(reason))
    source = SourceFiles(tuple(file for files in by_source.values() for file in files), tuple(by_source))
    if parallelism > READERS and parallelism * source.rows > ROWS:
        for field in by_source:
            log_left_to_spark(field, f"{source.rows} rows are too many for each of {parallelism} subtasks to read")
        return None
    for field, files in by_source.items():
        log.info(
            "each subtask reads %s: %d files, %d rows", _named(field), len(files), sum(file.rows for file in files)
        )
    return source if by_source else None


def _files_of(pipeline: Pipeline, field: str, locations: Sequence[str]) -> list[SourceFile]:
    source = pipeline.inputs[field]
    paths = [path for location in locations for path in data_files(location, source)]
    if len(paths) > MOST_FILES:
        raise LeftToSparkError(f"{len(paths)} files")
    types = {name: type_ for name, type_ in pipeline.column_types().items() if name in source.columns}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(partial(_source_file, field, types), paths))


def log_left_to_spark(field: str, reason: str) -> None:
    log.info("Spark reads %s and moves its events: %s", _named(field), reason)


def _named(field: str) -> str:
    """Return how the log names a source: by its field if it is one of several."""
    return "the source" if field == "source" else field


def own_events(pipeline: Pipeline, source: SourceFiles, subtask: int, parallelism: int) -> pa.Table:
    """Return the events of one subtask, in the declared columns and types. A column that a source does not have is
    null. The order is that of the files, so it is the same in every try.

    Raises RetryableError: ``source-changed`` (a file was written again after the driver listed it),
    ``source-unreadable``."""
    wanted = event_schema(pipeline)
    owners = owners_of(pipeline, parallelism)

    def own(batch: pa.RecordBatch) -> pa.RecordBatch:
        if parallelism > 1:
            batch = batch.filter(pc.equal(owners(*(batch[name] for name in pipeline.key)), subtask))
        return _with_nulls(batch, wanted)

    inputs = pipeline.inputs
    columns = {field: [name for name in wanted.names if name in inputs[field].columns] for field in source.sources}

    def own_of(file: SourceFile) -> list[pa.RecordBatch]:
        return [own(batch) for batch in _batches(file, columns[file.source])]

    with ThreadPoolExecutor(AT_ONCE if _are_small_objects(source.files) else 1) as pool:
        batches = [batch for part in pool.map(own_of, source.files) for batch in part]
    return pa.Table.from_batches(batches, wanted).combine_chunks()


def _are_small_objects(files: Sequence[SourceFile]) -> bool:
    return all(file.rows <= _BATCH_ROWS and location_if_object(file.path) for file in files)


def _with_nulls(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the wanted types, with null for the columns that it does not have."""
    present = set(batch.schema.names)
    arrays = [
        as_declared(batch[field.name], field) if field.name in present else pa.nulls(len(batch), field.type)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _batches(source_file: SourceFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(open_file(source_file.path), coerce_int96_timestamp_unit="us", pre_buffer=True) as file:
            _check_unchanged(source_file, file)
            yield from file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False)
    except (OSError, pa.ArrowException, NotFoundError) as error:
        raise RetryableError(
            f"source file {source_file.path} cannot be read: {error}",
            kind="source-unreadable",
            hint="the path must lead to the same files on every host; write a damaged one again; then run again",
        ) from error


def _check_unchanged(source_file: SourceFile, file: pq.ParquetFile) -> None:
    """Raise RetryableError (``source-changed``) if the footer is not the one that the driver has read."""
    if _footer_hash(file) != source_file.footer:
        raise RetryableError(
            f"source file {source_file.path} was written again while the interval was read",
            kind="source-changed",
            hint="write an interval's files before its run; run again, it reads what is there then",
        )


def _footer_hash(file: pq.ParquetFile) -> int:
    return xxh3(pickle.dumps(file.metadata))


def _source_file(field: str, types: Mapping[str, StateType], path: str) -> SourceFile:
    try:
        with pq.ParquetFile(open_file(path)) as file:
            missing = absent(types, file.schema_arrow.names)
            if not missing:
                _check_columns(types, path, file)
                return SourceFile(field, path, file.metadata.num_rows, _footer_hash(file))
            present = file.schema_arrow.names
    except (OSError, pa.ArrowException, StatelibError) as error:
        raise LeftToSparkError(f"{path}: {error}") from error
    raise without_columns(field, path, missing, present)


def _check_columns(types: Mapping[str, StateType], path: str, file: pq.ParquetFile) -> None:
    """Raise LeftToSparkError if the columns of the file cannot be read as Spark reads them."""
    properties = file.metadata.metadata or {}
    if any(name in properties for name in _OLD_CALENDAR) or properties.get(_WRITER, b"3").startswith((b"1.", b"2.")):
        raise LeftToSparkError(f"{path} has days of the old calendar")
    schema = file.schema_arrow
    flat = {column.path: column.physical_type for column in map(file.schema.column, range(len(file.schema)))}
    for name, declared in types.items():
        # Spark does not distinguish capital letters, and refuses a file with two such columns
        if [each for each in schema.names if each.lower() == name.lower()] != [name]:
            raise LeftToSparkError(f"{path} has no column {name}, or several whose names differ in capital letters")
        actual = "timestamp" if flat.get(name) == "INT96" else parquet_type(schema.field(name).type)
        if not is_read_as(actual, spark_name(declared)):
            raise LeftToSparkError(f"{path}: column {name} is {schema.field(name).type}")
