"""The checks that no file of an interval is left out: Spark reads every file below the path of a source, and the path
does not name a shorter unit of time, such as the first hour of a day.

Spark reads the files that are directly in the directories of a path. If there are partition directories below them,
such as ``hour=1``, it reads only the files in those. It leaves out all other files without an error.
"""

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from statelib.definition.parts.source import DATA_FORMATS
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import SourcePart, range_text
from statelib.definition.source.templates import at_interval, units_of
from statelib.errors import InvalidRequestError, StatelibError
from statelib.model.path_patterns import split_pattern, without_host
from statelib.spark.session.job_failures import naming_what_failed
from statelib.storage.registry import PLACES
from statelib.storage.source_listing import data_files_below, look_at_source

_FILTERS = ("pathglobfilter", "modifiedafter", "modifiedbefore", "timezone")
"""The options by which a user leaves out files."""
_EXAMPLES = 3
_LONGEST_MS = 3_600_000
"""The longest unit that is checked. A directory that is named by a day may have the events of a week, while those of
other days belong to other pipelines; an hour that is always the same can be written as text."""


def check_all_files_are_read(
    spark: SparkSession,
    where: str,
    path: str,
    options: Mapping[str, str],
    *,
    file_format: str,
    marker: str = "",
    within_reach: bool = False,
    option: str = "options: {{{}: {}}}",
) -> None:
    """Compare all files below a path with those that Spark reads. ``where``: what the error begins with. ``marker``:
    the path of a file that has no events. Files without content have none either. ``within_reach``: this process can
    list the path; then Spark lists it only if something may be left out. A path that Spark cannot list is not
    checked, because reading it fails with the reason. ``option``: how users write a name and a value of Spark's
    options, '' if they cannot.

    Raises InvalidRequestError (``unread-files``), RetryableError (``source-unreadable``)."""
    given = {name.lower(): value for name, value in options.items()}
    if file_format.lower() not in DATA_FORMATS or given.get("recursivefilelookup", "").lower() == "true":
        return
    base = given.get("basepath", "")
    if within_reach and not _may_leave_out(path, base):
        return
    filters = {name: given[name] for name in _FILTERS if name in given}
    try:
        with naming_what_failed():
            listed = spark.read.format("binaryFile").options(**filters, recursiveFileLookup="true").load(path)
            files = [_plain(unquote(uri)) for uri in listed.inputFiles()]
    except AnalysisException:
        return
    unread = set(unread_files(path, files, base)) - {_plain(marker)}
    if unread and (unread := unread & _with_content(listed)):
        raise _left_out(where, path, sorted(unread), files, option)


def _may_leave_out(path: str, base: str) -> bool:
    """Return whether Spark leaves out a file below a path, or whether its files cannot be listed here. This takes much
    less time than a listing by Spark, but does not know the filters of Spark's reader."""
    try:
        files = [_plain(file) for file in data_files_below(path, PLACES)]
    except StatelibError:
        return True
    return bool(unread_files(path, files, base))


def unread_files(path: str, files: Sequence[str], base: str = "") -> list[str]:
    """Return those of the files below a path that Spark does not read. ``path``: a path or pattern of Spark. ``files``:
    paths without scheme. ``base``: Spark's option ``basePath``, below which directories are partitions."""
    root, pattern = split_pattern(_plain(path))
    directories = {file: _below(root, file)[len(pattern) : -1] for file in files}
    above = {file: _below(_plain(base), file)[:-1] for file in files} if base else directories
    in_partitions = [file for file in files if any("=" in name for name in above[file])]
    read = set(in_partitions or (file for file in files if not directories[file]))
    return [file for file in files if file not in read]


def _below(root: str, file: str) -> list[str]:
    """Return the names that lead from a directory to a file; none if the file is not below it."""
    rest = file.partition(f"{root.rstrip('/')}/")[2]
    return rest.split("/") if rest else []


def _plain(path: str) -> str:
    """Return a path without scheme and host, and without the backslashes and slashes that mean nothing."""
    plain = re.sub(r"\\([^*?\[\]{}])", r"\1", without_host(path))
    return re.sub("/(?:\\./)*/*", "/", plain)


def _with_content(listed: DataFrame) -> set[str]:
    """Return the paths of the files that are not empty."""
    with naming_what_failed():
        return {_plain(row.path) for row in listed.select("path").collect()}


def _left_out(where: str, path: str, unread: Sequence[str], files: Collection[str], option: str) -> InvalidRequestError:
    root, pattern = split_pattern(_plain(path))
    examples = _texts("/".join(_below(root, file)) for file in unread)
    has_partitions = any("=" in name for file in files for name in _below(root, file)[len(pattern) : -1])
    reason = (
        "beside directories such as hour=1, Spark reads no files"
        if has_partitions
        else "Spark reads the files in the directory, and not those in its subdirectories"
    )
    recursive, filtered = (
        f"'{option.format(name, value)}', or " if option else ""
        for name, value in (("recursiveFileLookup", "true"), ("pathGlobFilter", '"*.parquet"'))
    )
    hint = (
        "write them into such a directory"
        if has_partitions
        else f"to read them, write {recursive}a pattern as the path, such as .../*"
    )
    return InvalidRequestError(
        f"{where}: {len(unread)} of {len(files)} files would not be read: {examples}; {reason}",
        kind="unread-files",
        hint=f"{hint}; to leave files out, write {filtered}let their name or directory begin with _",
    )


def _texts(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join([*shown[:_EXAMPLES], *(["..."] if len(shown) > _EXAMPLES else [])])


def check_units_are_read(pipeline: Pipeline, parts: Sequence[SourcePart], data: str) -> None:
    """Raise InvalidRequestError (``source-finer-than-interval``) if a part's path names an hour or less of an interval
    that is longer, and there are events of another such unit of the interval. Of these, only the first ones and the
    last are looked for. ``data``: the value of ``{data}``."""
    for part in parts:
        for path in _other_units(pipeline, part, data):
            if _exists(path):
                raise InvalidRequestError(
                    f"pipeline {pipeline.name}: {part.field}.path {part.source.path!r} names a part of the interval "
                    f"{range_text(part.interval)} only: {part.path} would be read, and {path} left out",
                    kind="source-finer-than-interval",
                    hint="let the schedule have such short intervals; or read all of the interval by a pattern, as "
                    "{start:%Y-%m-%d}T*; or write what is always the same as text, as {start:%Y-%m-%d}T00",
                )


def _other_units(pipeline: Pipeline, part: SourcePart, data: str) -> Iterator[str]:
    """Yield the paths of the first, the second and the last unit of time that the path names, without its own."""
    template = part.source.path
    units = () if template is None or part.source.incremental else units_of(template, part.interval, pipeline.zone)
    if template is None or len(units) < 2 or units[0].end_ms - units[0].start_ms > _LONGEST_MS:
        return
    paths = (at_interval(template, data, unit, pipeline.zone) for unit in (*units[:2], units[-1]))
    yield from dict.fromkeys(path for path in paths if path != part.path)


def _exists(path: str) -> bool:
    """Return whether a path is there. One that only Spark can reach counts as missing."""
    with contextlib.suppress(StatelibError):
        return look_at_source(path, PLACES).exists
    return False
