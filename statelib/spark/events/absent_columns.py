"""The check that every Parquet file of a source, or of a table to begin from, has the columns that are used, in types
that Spark reads well.

Spark takes the columns of a source from one of its files, and nulls for what another file does not have. Which file it
takes depends on their names, so a column that was renamed during an interval would be null for some of its events. It
reads the numbers and times of the other files as values of that one file's types, also where they are none: an int of
70,000 becomes a short of 4,464, and a local time an instant. It does the same with the fields in a column.
"""

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from statelib.definition.parts.source import Source
from statelib.definition.source.parts import SourcePart
from statelib.errors import InvalidRequestError, StatelibError
from statelib.spark.events.source_paths import in_bucket, open_file
from statelib.spark.events.source_types import is_misread, parquet_type

AT_ONCE = 8
"""The number of footers, or of small objects of a bucket, that are read at the same time: each request takes long."""
COMPARED_FILES = 1000
"""The most files whose footers the driver reads."""
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_WORD = re.compile(r"\w+")
_UNSIGNED = {pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)"}
_LOCAL_TIMES = "spark.sql.parquet.inferTimestampNTZ.enabled"
"""The setting of Spark without which it takes all times without a zone for instants."""

Path = tuple[str, ...]
"""The names from a column to a field in it. :data:`_ELEMENT` leads to the elements of a list, :data:`_KEY` and
:data:`_VALUE` to those of a map."""
_ELEMENT, _KEY, _VALUE = "[]", "[key]", "[value]"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Used:
    """The use of some Parquet files. ``texts``: names of columns, and SQL expressions that contain such names.
    ``may_lack``: whether some of the files may be without a column. ``hint_columns``, ``hint_types``: what to do if a
    file has no such column, or has it in another type."""

    texts: Sequence[str]
    may_lack: bool = False
    hint_columns: str = "write all files with the columns that are used"
    hint_types: str = "write the files with one type for the column"

    def names(self) -> set[str]:
        """Return the names that the texts may contain, in small letters."""
        words = (word for text in self.texts for word in (text, *_WORD.findall(_TEXT.sub("''", text))))
        return set(map(str.lower, words))


def check_files_read_by_spark(part: SourcePart, frame: DataFrame) -> None:
    """Raise InvalidRequestError: ``missing-column`` if one Parquet file of the part has a column that the pipeline uses
    and another file does not have it, ``column-type`` if Spark would read other values than a file has. ``frame``: the
    part as Spark reads it.

    A column may be missing if the pipeline file allows that, by ``file_schema`` or the option ``mergeSchema``. Nothing
    is checked if there are more than :data:`COMPARED_FILES`, or if this host cannot read them."""
    source = part.source
    if part.path is None or source.file_format.lower() != "parquet":
        return
    hint_types = f"write the files with one type for the column, or declare the widest one in {part.field}.file_schema"
    may_lack = source.file_schema is not None or merges_schemas(source.options)
    used = Used([*_expressions(source)], may_lack, _hint_columns(part.field), hint_types)
    check_parquet_files(frame, used, part.place, fewest=1 if source.file_schema else 2)


def merges_schemas(options: Mapping[str, str]) -> bool:
    """Return whether the options of Spark's reader have its ``mergeSchema``, with which a file may lack columns."""
    return any(name.lower() == "mergeschema" for name in options)


def check_parquet_files(frame: DataFrame, use: Used, place: str, *, fewest: int = 2) -> None:
    """Compare the Parquet files of a frame. ``place``: what the log calls them. ``fewest``: a smaller number of files
    is not looked at.

    Raises and leaves out as :func:`check_files_read_by_spark`."""
    paths = [_plain(uri) for uri in frame.inputFiles()]
    if not fewest <= len(paths) <= COMPARED_FILES:
        return
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            columns = list(pool.map(_columns_of, paths))
    except (OSError, pa.ArrowException, StatelibError) as error:
        log.info("the columns of the files of %s are not compared: %s", place, error)
        return
    used = _used(use.names(), {_lower(field) for fields in columns for field in fields})
    for path, fields in zip(paths, columns, strict=True):
        if not use.may_lack:
            _check_fields(path, fields, used, use.hint_columns)
    _check_types(dict(zip(paths, columns, strict=True)), used, frame, use.hint_types)


def _used(words: Collection[str], fields: Collection[Path]) -> set[Path]:
    """Return the fields that are used. If no field of a struct is among the words, the struct is used as a whole."""
    named = {field[:-1] for field in fields if field[-1] in words}

    def is_used(field: Path) -> bool:
        step = field[-1]
        return step.startswith("[") or step in words or (len(field) > 1 and field[:-1] not in named)

    return {field for field in fields if all(is_used(field[:end]) for end in range(1, len(field) + 1))}


def _lower(field: Path) -> Path:
    return tuple(map(str.lower, field))


def _shown(field: Path) -> str:
    return ".".join(field).replace(".[", "[")


def _check_fields(path: str, fields: Iterable[Path], used: Iterable[Path], hint: str) -> None:
    """Raise InvalidRequestError (``missing-column``) if a file does not have a used column, or a used field of a struct
    that it has."""
    present = {_lower(field): field for field in fields}
    structs = {(), *(field[:-1] for field in present)}
    missing = sorted(field for field in used if field not in present and field[:-1] in structs)
    if missing:
        beside = [_shown(field) for lower, field in present.items() if lower[:-1] == missing[0][:-1]]
        raise _without_columns(path, map(_shown, missing), beside, hint)


def absent(names: Iterable[str], present: Sequence[str]) -> list[str]:
    """Return the names that are not among ``present`` in any case of their letters."""
    folded = set(map(str.lower, present))
    return [name for name in names if name.lower() not in folded]


def without_columns(field: str, path: str, missing: Sequence[str], present: Sequence[str]) -> InvalidRequestError:
    """Return the error for a Parquet file without some columns. ``field``: the source's field in the pipeline file.
    ``present``: the columns that the file has."""
    return _without_columns(path, missing, present, _hint_columns(field))


def _without_columns(path: str, missing: Iterable[str], present: Iterable[str], hint: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"source file {path} has no column {', '.join(missing)}; it has {', '.join(present)}",
        kind="missing-column",
        hint=hint,
    )


def _hint_columns(field: str) -> str:
    return (
        f"correct {field}.columns in the pipeline file; if some files do not have the column yet, declare the columns "
        f"of the files in {field}.file_schema, and it is null in their events"
    )


def _expressions(source: Source) -> Iterator[str]:
    """Yield the names of the source's columns and its expressions."""
    changes = source.changes
    yield from (source.where or "", source.delete_when or "", *source.each.values())
    yield from (name if column.expr is None else column.expr for name, column in source.columns.items())
    if changes is not None:
        yield from (changes.op, changes.before or "", changes.after or "")


def _check_types(files: Mapping[str, Mapping[Path, str]], used: Collection[Path], frame: DataFrame, hint: str) -> None:
    """Raise InvalidRequestError (``column-type``) for a used field that Spark would misread. ``files``: the types of
    the fields of each file. Spark takes a column that the path has, as in ``day=3``, from there."""
    taken = {
        path: type_ for column in frame.schema.fields for path, type_ in _of_spark(column.dataType, (column.name,))
    }
    takes_local_times = frame.sparkSession.conf.get(_LOCAL_TIMES) != "false"
    for path, field, type_ in ((path, field, type_) for path, types in files.items() for field, type_ in types.items()):
        actual, lower = type_ if takes_local_times else type_.removesuffix("_ntz"), _lower(field)
        wanted = taken.get(lower, "")
        if lower in used and is_misread(actual, wanted) and f"/{lower[0]}=" not in path.lower():
            raise InvalidRequestError(
                f"source file {path}: column {_shown(field)} is {actual}, which Spark would read as {wanted}",
                kind="column-type",
                hint=hint,
            )


def _of_spark(type_: t.DataType, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path in small letters and the type of a column of Spark, and of the fields in it."""
    yield _lower(path), type_.simpleString()
    if isinstance(type_, t.StructType):
        inner = [(field.name, field.dataType) for field in type_.fields]
    elif isinstance(type_, t.ArrayType):
        inner = [(_ELEMENT, type_.elementType)]
    else:
        inner = [(_KEY, type_.keyType), (_VALUE, type_.valueType)] if isinstance(type_, t.MapType) else []
    for name, each in inner:
        yield from _of_spark(each, (*path, name))


def _columns_of(path: str) -> dict[Path, str]:
    """Return the type in which Spark reads each field of a file alone; '' if it is not certain, as for the times of
    INT96, which may be local ones."""
    with pq.ParquetFile(open_file(path)) as file:
        stored = map(file.schema.column, range(len(file.schema)))
        unclear = {column.path for column in stored if column.physical_type == "INT96"}
        types = dict(each for field in file.schema_arrow for each in _of_arrow(field.type, (field.name,)))
    return {field: "" if ".".join(field) in unclear else type_ for field, type_ in types.items()}


def _of_arrow(type_: pa.DataType, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path and the type of a column of a file, and of the fields in it."""
    yield path, _UNSIGNED.get(type_) or parquet_type(type_)
    if pa.types.is_struct(type_):
        inner = [(field.name, field.type) for field in type_.fields]
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        inner = [(_ELEMENT, type_.value_type)]
    else:
        inner = [(_KEY, type_.key_type), (_VALUE, type_.item_type)] if pa.types.is_map(type_) else []
    for name, each in inner:
        yield from _of_arrow(each, (*path, name))


def _plain(uri: str) -> str:
    """Return the local path of a URI of Spark, or the URI of an object as :func:`open_file` takes it, without
    escapes."""
    plain = unquote(re.sub("^file:(?://)?", "", uri))
    return in_bucket(plain) or plain
