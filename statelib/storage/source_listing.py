"""Listing the files of a source. Its path is a file, a directory or a pattern of Spark's, on a file system or in a
bucket.

A source that only Spark can reach (HDFS, a table) is refused with an error that names it.
"""

import contextlib
import re
from dataclasses import dataclass

from statelib.errors import UnsupportedError
from statelib.model.path_patterns import name_expression, split_pattern
from statelib.storage.places import Places
from statelib.storage.ports.inventory import SourceEntry
from statelib.storage.ports.kind import StorageKind
from statelib.storage.uris import is_absolute

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_HADOOPS = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of schemes, and the names of the same schemes here."""


@dataclass(frozen=True)
class SourceListing:
    """The state of a source at one moment.

    ``exists``: whether anything has the path, which includes a directory without files.
    ``files``: the number of files that Spark reads as data. Hidden ones are not data.
    ``newest_ms``: the latest modification time of all files, by the storage's clock in epoch milliseconds; None where
    there is no file."""

    exists: bool
    files: int
    newest_ms: int | None


def look_at_source(path: str, places: Places) -> SourceListing:
    """Return the listing of a source's path at this moment.

    Raises UnsupportedError (``source-not-visible``), and the errors of the storage while it is in trouble."""
    _, matching, pattern_length = _matching(path, places)
    times = [entry.modified_at_ms for entry in matching if entry.modified_at_ms is not None]
    files = sum(_is_data_file(entry, pattern_length) for entry in matching)
    return SourceListing(bool(matching), files, max(times, default=None))


def data_files_below(path: str, places: Places) -> list[str]:
    """Return the files below a source's path that Spark reads as data, wherever below it they are.

    Raises as :func:`look_at_source`."""
    root, matching, pattern_length = _matching(path, places)
    return ["/".join((root.rstrip("/"), *entry.below)) for entry in matching if _is_data_file(entry, pattern_length)]


def _matching(path: str, places: Places) -> tuple[str, list[SourceEntry], int]:
    """Return the part of a path before its pattern, the entries below it that match the pattern, and the number of
    names in the pattern."""
    kind, path = visible_source(path, places)
    root, pattern = split_pattern(path)
    expressions = [name_expression(part) for part in pattern]
    return root, [entry for entry in kind.source_entries(root) if _lies_under(entry, expressions)], len(expressions)


def _is_data_file(entry: SourceEntry, pattern_length: int) -> bool:
    """Return whether an entry is a file that Spark reads as data. A directory has no modification time."""
    return entry.modified_at_ms is not None and not _is_hidden(entry, pattern_length)


def visible_source(path: str, places: Places) -> tuple[StorageKind, str]:
    """Return a path's kind of storage, and the path with Hadoop's scheme replaced. Raise UnsupportedError
    (``source-not-visible``) if no kind can list the path."""
    scheme_match = _SCHEME.match(path)
    scheme = scheme_match[1].lower() if scheme_match else "file"
    path = f"{_HADOOPS[scheme]}{path[len(scheme) :]}" if scheme in _HADOOPS else path
    if is_absolute(path):
        with contextlib.suppress(UnsupportedError):
            return places.kind(path), path
    raise UnsupportedError(
        f"source {path}: whether it is there cannot be looked at from here: expected an absolute path, or a file:, "
        "s3:, s3a:, gs:, az: or abfss: URI",
        kind="source-not-visible",
        hint="let 'ready' in the pipeline file name an asset, or let a sensor of your own wait for it",
    )


def _lies_under(entry: SourceEntry, pattern: list[re.Pattern[str]]) -> bool:
    return len(entry.below) >= len(pattern) and all(
        part.fullmatch(name) for part, name in zip(pattern, entry.below, strict=False)
    )


def _is_hidden(entry: SourceEntry, pattern_length: int) -> bool:
    """Return whether Spark ignores the entry as hidden. A directory whose name matches the pattern of the path does not
    hide its files."""
    return any(map(is_hidden, entry.below[pattern_length:] or entry.below[-1:]))


def is_hidden(name: str) -> bool:
    """Return whether Spark ignores files and directories of this name. It reads those of a partition, ``_day=1``."""
    is_internal = name.startswith("_") and "=" not in name
    return is_internal or name.startswith(".") or name.endswith("._COPYING_")
