"""The data files of a source that subtasks can read themselves: in a local directory, or in a bucket."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from statelib.definition.parts.source import Source
from statelib.errors import StatelibError
from statelib.model.path_patterns import name_expression, split_pattern
from statelib.storage.objects.uris import location_if_object
from statelib.storage.registry import PLACES
from statelib.storage.source_listing import is_hidden, visible_source

_PLAIN = re.compile(r"(?:file:(?://)?)?(/(?!/)[^%*?\[\]{}\\]*)")
"""An absolute local path without wildcards and escapes."""
_PLAIN_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^%*?\[\]{}\\]+)")
_PLAIN_PATTERN = re.compile(r"[^%\[\]{}\\]*")
"""A name without escapes, and without wildcards other than ``*`` and ``?``."""


class LeftToSparkError(Exception):
    """The error whose message says why Spark must read the source."""


def in_bucket(location: str) -> str | None:
    """Return the URI of a location in a bucket, with Hadoop's name of its scheme replaced; None for other locations."""
    try:
        path = visible_source(location, PLACES)[1]
        return path if location_if_object(split_pattern(path)[0]) else None
    except StatelibError:
        return None


def data_files(location: str, source: Source) -> Sequence[str]:
    """Return the data files of a location as Spark would list them: paths, or URIs of objects. There may be none only
    if the pipeline file allows that. The location is a file, a flat directory, or a pattern for the names of files in
    one. Raises LeftToSparkError."""
    uri = in_bucket(location)
    files = _local_files(location, source) if uri is None else _objects(uri, source)
    if not files and not source.may_be_empty:
        raise LeftToSparkError(f"{location} has no files")
    return files


def open_file(path: str) -> BinaryIO | str:
    """Return what a reader of Parquet opens: the object of a URI as a file, or the path itself."""
    return PLACES.kind(path).open_source(path) if location_if_object(path) else path


def _local_files(location: str, source: Source) -> Sequence[str]:
    directory, pattern = _split(_PLAIN, location)
    path = Path(directory)
    if not path.exists():
        return _missing(location, source)
    try:
        entries = sorted(path.iterdir()) if path.is_dir() else [path]
        entries = [entry for entry in entries if pattern is None or pattern.fullmatch(entry.name)]
        # A directory inside the source may be a partition, or a log that lists the valid files.
        if any(entry.is_dir() for entry in entries):
            raise LeftToSparkError("a directory within the source")
    except OSError as error:
        raise LeftToSparkError(str(error)) from error
    return [str(entry) for entry in entries if not is_hidden(entry.name)]


def _missing(location: str, source: Source) -> Sequence[str]:
    """Return no files for a location that does not exist, if the pipeline file allows that: a marker alone allows only
    that there are no files in it. Raises LeftToSparkError."""
    if source.on_missing != "empty":
        raise LeftToSparkError(f"{location} does not exist")
    return []


def _objects(uri: str, source: Source) -> Sequence[str]:
    directory, pattern = _split(_PLAIN_URI, uri)
    try:
        entries = sorted(entry.below for entry in PLACES.kind(directory).source_entries(directory))
    except StatelibError as error:
        raise LeftToSparkError(str(error)) from error
    if not entries:
        return _missing(uri, source)
    if pattern is not None:
        entries = [below for below in entries if below and pattern.fullmatch(below[0])]
    if any(len(below) > 1 for below in entries):
        raise LeftToSparkError("a directory within the source")
    names = [name for below in entries for name in below if name and not is_hidden(name)]
    return [directory] if entries == [()] else [f"{directory.rstrip('/')}/{name}" for name in names]


def _split(plain: re.Pattern[str], location: str) -> tuple[str, re.Pattern[str] | None]:
    """Return the location before its last name if that is a pattern, and the pattern; otherwise the whole and None."""
    directory, names = split_pattern(location)
    match = plain.fullmatch(directory)
    if match is None or len(names) > 1 or not all(map(_PLAIN_PATTERN.fullmatch, names)):
        raise LeftToSparkError(f"{location} is no plain path")
    return match[1], name_expression(names[0]) if names else None
