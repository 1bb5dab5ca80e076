"""The check that every file of a source, or of a table to begin from, has the columns that are used, in types that
Spark reads well. Files of Parquet and ORC are checked, because Spark takes their columns from the files.

Spark takes the columns of a source from one of its files, and nulls for what another file does not have. Which file it
takes depends on their names, so a column that was renamed during an interval would be null for some of its events. It
reads the numbers and times of the other files as values of that one file's types, also where they are none: an int of
70,000 in Parquet becomes a short of 4,464, and a local time an instant; a text in ORC becomes a null beside numbers. It
does the same with the fields in a column.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame

from statelib.definition.parts.source import Source
from statelib.definition.source.parts import SourcePart
from statelib.errors import InvalidRequestError, StatelibError
from statelib.spark.events.file_fields import FORMATS, Path, fields_of, is_step, lower, of_spark, shown
from statelib.spark.events.source_paths import in_bucket

AT_ONCE = 8
"""The number of footers, or of small objects of a bucket, that are read at the same time: each request takes long."""
COMPARED_FILES = 1000
"""The most files whose footers the driver reads."""
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?P<quoted>[^`]+)`|(?P<word>\w+)")
"""A text in SQL, or a name in backticks or without."""
_WORD = re.compile(r"\w+")
_IN_PART = re.compile(r"\s*(?:[.\[]|IS\s+(?:NOT\s+)?NULL\b)", re.IGNORECASE)
"""What follows the name of a struct of which only a field is read, or only whether it is null."""
_LOCAL_TIMES = "spark.sql.parquet.inferTimestampNTZ.enabled"
"""The setting of Spark without which it takes all times without a zone for instants."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Used:
    """The use of some files. ``texts``: names of columns, and SQL expressions that contain such names.
    ``may_lack``: whether some of the files may be without a column. ``hint_columns``, ``hint_types``: what to do if a
    file has no such column, or has it in another type."""

    texts: Sequence[str]
    may_lack: bool = False
    hint_columns: str = "write all files with the columns that are used"
    hint_types: str = "write the files with one type for the column"

    def names(self) -> set[str]:
        """Return the names that the texts may contain, in small letters."""
        return {*map(str.lower, self.texts), *(name for name, _ in self._mentions())}

    def read_whole(self) -> set[str]:
        """Return the names that stand somewhere without a field after them, in small letters."""
        return {name for name, is_in_part in self._mentions() if not is_in_part}

    def _mentions(self) -> Iterator[tuple[str, bool]]:
        """Yield each name in the texts, and whether only a part of it is read there."""
        for text in self.texts:
            for token in _TOKEN.finditer(text):
                names = [token["word"]] if token["word"] else _WORD.findall(token["quoted"] or "")
                is_in_part = _IN_PART.match(text, token.end()) is not None
                yield from ((name.lower(), is_in_part) for name in filter(None, (token["quoted"], *names)))


def check_files_read_by_spark(part: SourcePart, frame: DataFrame) -> None:
    """Raise InvalidRequestError: ``missing-column`` if one file of the part has a column that the pipeline uses and
    another file does not have it, ``column-type`` if Spark would read other values than a file has. ``frame``: the
    part as Spark reads it.

    A column may be missing if the pipeline file allows that, by ``file_schema`` or the option ``mergeSchema``. Nothing
    is checked of other formats than Parquet and ORC, if there are more than :data:`COMPARED_FILES`, or if this host
    cannot read them."""
    source = part.source
    if part.path is None:
        return
    hint_types = f"write the files with one type for the column, or declare the widest one in {part.field}.file_schema"
    may_lack = source.file_schema is not None or merges_schemas(source.options)
    used = Used([*_expressions(source)], may_lack, _hint_columns(part.field), hint_types)
    check_files(frame, source.file_format, used, part.place, fewest=1 if source.file_schema else 2)


def merges_schemas(options: Mapping[str, str]) -> bool:
    """Return whether the options of Spark's reader have its ``mergeSchema``, with which a file may lack columns."""
    return any(name.lower() == "mergeschema" for name in options)


def check_files(frame: DataFrame, file_format: str, use: Used, place: str, *, fewest: int = 2) -> None:
    """Compare the files of a frame. ``place``: what the log calls them. ``fewest``: a smaller number of files is not
    looked at.

    Raises and leaves out as :func:`check_files_read_by_spark`."""
    compared = FORMATS.get(file_format.lower())
    paths = [_plain(uri) for uri in frame.inputFiles()] if compared else []
    if compared is None or not fewest <= len(paths) <= COMPARED_FILES:
        return
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            read = dict(zip(paths, pool.map(partial(fields_of, compared), paths), strict=True))
    except (OSError, pa.ArrowException, StatelibError) as error:
        # Spark's error names a damaged file; other files may be read by Spark alone, and no error would follow.
        level = logging.INFO if isinstance(error, pa.ArrowInvalid) else logging.WARNING
        log.log(level, "the columns of the files of %s are not compared: %s", place, error)
        return
    files = {path: fields for path, fields in read.items() if fields is not None}
    used = _used(use, {lower(field) for fields in files.values() for field in fields})
    for path, fields in files.items():
        if not use.may_lack:
            _check_fields(path, fields, used, use.hint_columns)
    _check_types(files, used, frame, compared.is_misread, use.hint_types)


def _used(use: Used, fields: Collection[Path]) -> set[Path]:
    """Return the fields that are used. Those of a struct are used by their names if one of them is among the names in
    the texts; otherwise, and if the struct is read as a whole somewhere, all of them are used. The elements of a list
    are read as a whole only if the list is a column itself, because a function may return one of them."""
    words, whole, columns = use.names(), use.read_whole(), set(map(str.lower, use.texts))
    named = {field[:-1] for field in fields if field[-1] in words}

    def name_of(struct: Path) -> str:
        return next(step for step in reversed(struct) if not is_step(step))

    def is_read_whole(field: Path, end: int) -> bool:
        is_in_list = any(map(is_step, field[end - 1 : end + 1]))
        return name_of(field[:end]) in (columns if is_in_list else whole)

    def is_used(field: Path) -> bool:
        step, struct = field[-1], field[:-1]
        if is_step(step) or step in words or not struct:
            return is_step(step) or step in words
        is_unnamed = struct not in named or name_of(struct) not in words
        return is_unnamed or any(is_read_whole(field, end) for end in range(1, len(field)))

    return {field for field in fields if all(is_used(field[:end]) for end in range(1, len(field) + 1))}


def _check_fields(path: str, fields: Collection[Path], used: Iterable[Path], hint: str) -> None:
    """Raise InvalidRequestError (``missing-column``) if a file does not have a used column, or a used field of a struct
    that it has."""
    present = set(map(lower, fields))
    structs = {(), *(field[:-1] for field in present)}
    missing = sorted(field for field in used if field not in present and field[:-1] in structs)
    if missing:
        beside = [shown(field) for field in fields if lower(field)[:-1] == missing[0][:-1]]
        raise _without_columns(path, map(shown, missing), beside, hint)


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
    """Yield the names of the source's columns and its expressions. Of the elements of a list, and of the rows of a
    change, only fields are read."""
    changes = source.changes
    yield from (source.where or "", source.delete_when or "", *(f"{text}." for text in source.each.values()))
    yield from (name if column.expr is None else column.expr for name, column in source.columns.items())
    if changes is not None:
        yield from (changes.op, *(f"{text}." for text in (changes.before, changes.after) if text))


def _check_types(
    files: Mapping[str, Mapping[Path, str]],
    used: Collection[Path],
    frame: DataFrame,
    is_misread: Callable[[str, str], bool],
    hint: str,
) -> None:
    """Raise InvalidRequestError (``column-type``) for a used field that Spark would misread. ``files``: the types of
    the fields of each file. Spark takes a column that the path has, as in ``day=3``, from there."""
    taken = {lower(field): type_ for field, type_ in of_spark(frame.schema).items()}
    takes_local_times = frame.sparkSession.conf.get(_LOCAL_TIMES) != "false"
    for path, field, type_ in ((path, field, type_) for path, types in files.items() for field, type_ in types.items()):
        actual = type_ if takes_local_times else type_.removesuffix("_ntz")
        wanted = taken.get(lower(field), "")
        if lower(field) in used and is_misread(actual, wanted) and f"/{field[0].lower()}=" not in path.lower():
            raise InvalidRequestError(
                f"source file {path}: column {shown(field)} is {actual}, which Spark would read as {wanted}",
                kind="column-type",
                hint=hint,
            )


def _plain(uri: str) -> str:
    """Return the local path of a URI of Spark, or the URI of an object as :func:`open_file` takes it, without
    escapes."""
    plain = unquote(re.sub("^file:(?://)?", "", uri))
    return in_bucket(plain) or plain
