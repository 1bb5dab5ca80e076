"""The check that every Parquet file of a source has the columns that the pipeline uses.

Spark takes the columns of a source from one of its files, and nulls for what another file does not have. Which file it
takes depends on their names, so a column that was renamed during an interval would be null for some of its events.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from statelib.definition.parts.source import Source
from statelib.definition.source.parts import SourcePart
from statelib.errors import InvalidRequestError, StatelibError
from statelib.spark.events.source_paths import open_file

AT_ONCE = 8
"""The number of footers, or of small objects of a bucket, that are read at the same time: each request takes long."""
COMPARED_FILES = 1000
"""The most files whose footers the driver reads."""
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_WORD = re.compile(r"\w+")

log = logging.getLogger(__name__)


def check_files_read_by_spark(part: SourcePart, frame: DataFrame) -> None:
    """Raise InvalidRequestError (``missing-column``) if one Parquet file of the part has a column that the pipeline
    uses and another file does not have it. ``frame``: the part as Spark reads it.

    Nothing is checked if the pipeline file allows such files, by ``file_schema`` or the option ``mergeSchema``, if
    there are more than :data:`COMPARED_FILES`, or if this host cannot read them."""
    source = part.source
    if part.path is None or source.file_format.lower() != "parquet" or source.file_schema is not None:
        return
    if any(name.lower() == "mergeschema" for name in source.options):
        return
    paths = [_plain(uri) for uri in frame.inputFiles()]
    if not 1 < len(paths) <= COMPARED_FILES:
        return
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            columns = list(pool.map(_columns_of, paths))
    except (OSError, pa.ArrowException, StatelibError) as error:
        log.info("the columns of the files of %s are not compared: %s", part.place, error)
        return
    used = sorted(_used(source) & {name.lower() for names in columns for name in names})
    for path, present in zip(paths, columns, strict=True):
        if missing := absent(used, present):
            raise without_columns(part.field, path, missing, present)


def absent(names: Iterable[str], present: Sequence[str]) -> list[str]:
    """Return the names that are not among ``present`` in any case of their letters."""
    folded = set(map(str.lower, present))
    return [name for name in names if name.lower() not in folded]


def without_columns(field: str, path: str, missing: Sequence[str], present: Sequence[str]) -> InvalidRequestError:
    """Return the error for a Parquet file without some columns. ``field``: the source's field in the pipeline file.
    ``present``: the columns that the file has."""
    return InvalidRequestError(
        f"source file {path} has no column {', '.join(missing)}; it has {', '.join(present)}",
        kind="missing-column",
        hint=f"correct {field}.columns in the pipeline file; if some files do not have the column yet, declare the "
        f"columns of the files in {field}.file_schema, and it is null in their events",
    )


def _used(source: Source) -> set[str]:
    """Return the names that the source's columns and expressions may refer to, in small letters."""
    plain = {name.lower() for name, column in source.columns.items() if column.expr is None}
    words = (word.lower() for text in _expressions(source) for word in _WORD.findall(_TEXT.sub("''", text)))
    return plain.union(words)


def _expressions(source: Source) -> Iterator[str]:
    changes = source.changes
    yield from (source.where or "", source.delete_when or "", *source.each.values())
    yield from (column.expr or "" for column in source.columns.values())
    if changes is not None:
        yield from (changes.op, changes.before or "", changes.after or "")


def _columns_of(path: str) -> list[str]:
    with pq.ParquetFile(open_file(path)) as file:
        return list(file.schema_arrow.names)


def _plain(uri: str) -> str:
    """Return the local path of a URI of Spark, or the URI of an object, without escapes."""
    return unquote(re.sub("^file:(?://)?", "", uri))
