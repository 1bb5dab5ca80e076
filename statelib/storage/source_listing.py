"""Listing the files of a source. Its path is a file, a directory or a pattern of Spark's, on a file system or in a
bucket.

A source that only Spark can reach (HDFS, a table) is refused with an error that names it.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from statelib.errors import NotFoundError, UnsupportedError
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.uris import is_object, object_location
from statelib.storage.retries import Retries
from statelib.storage.uris import local_path

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_HADOOPS = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of schemes, and the names of the same schemes here."""
_SPECIAL = re.compile(r"[*?\[\]{}]")


@dataclass(frozen=True)
class SourceListing:
    """The state of a source at one moment.

    ``exists``: whether anything has the path, which includes a directory without files.
    ``files``: the number of files that Spark reads as data. Names that begin with ``_`` or ``.`` are not data.
    ``newest_ms``: the latest modification time of all files, by the storage's clock in epoch milliseconds; None where
    there is no file."""

    exists: bool
    files: int
    newest_ms: int | None


@dataclass(frozen=True)
class _Entry:
    """One file or directory of a listing. ``below``: the names that lead from the listed directory to the entry.
    ``modified_at_ms``: the modification time of a file, None for a directory."""

    below: tuple[str, ...]
    modified_at_ms: int | None


def look_at_source(path: str, retries: Retries) -> SourceListing:
    """Return the listing of a source's path at this moment.

    Raises UnsupportedError (``source-not-visible``), and the errors of the storage while it is in trouble."""
    root, pattern = _split(_visible(path))
    entries = _objects(root, retries) if is_object(root) else _files(root)
    expressions = [re.compile(_expression(part)) for part in pattern]
    matching = [entry for entry in entries if _lies_under(entry, expressions)]
    times = [entry.modified_at_ms for entry in matching if entry.modified_at_ms is not None]
    data = [entry for entry in matching if entry.modified_at_ms is not None and not _is_hidden(entry, len(expressions))]
    return SourceListing(bool(matching), len(data), max(times, default=None))


def _visible(path: str) -> str:
    """Return a path that this module can list, with Hadoop's scheme replaced. Raise UnsupportedError
    (``source-not-visible``) for any other path."""
    scheme_match = _SCHEME.match(path)
    scheme = scheme_match[1].lower() if scheme_match else "file"
    path = f"{_HADOOPS[scheme]}{path[len(scheme) :]}" if scheme in _HADOOPS else path
    if (scheme == "file" and (scheme_match or path.startswith("/"))) or is_object(path):
        return path
    raise UnsupportedError(
        f"source {path}: whether it is there cannot be looked at from here: expected an absolute path, or a file:, "
        "s3:, s3a:, gs:, az: or abfss: URI",
        kind="source-not-visible",
        hint="let 'ready' in the pipeline file name an asset, or let a sensor of your own wait for it",
    )


def _split(path: str) -> tuple[str, tuple[str, ...]]:
    """Return the path before the first name with a wildcard, and that name with all names after it."""
    parts = path.split("/")
    first_pattern = next((i for i, part in enumerate(parts) if _SPECIAL.search(part)), len(parts))
    return "/".join(parts[:first_pattern]), tuple(part for part in parts[first_pattern:] if part)


def _lies_under(entry: _Entry, pattern: list[re.Pattern[str]]) -> bool:
    return len(entry.below) >= len(pattern) and all(
        part.fullmatch(name) for part, name in zip(pattern, entry.below, strict=False)
    )


def _is_hidden(entry: _Entry, pattern_length: int) -> bool:
    """Return whether Spark ignores the entry as hidden. Names that match the pattern of the path are never hidden."""
    return any(name.startswith(("_", ".")) for name in entry.below[pattern_length:])


def _files(root: str) -> Iterator[_Entry]:
    path = local_path(root)
    with storage_errors(f"looking at {path}"):
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        if stat.S_ISDIR(status.st_mode):
            yield _Entry((), None)
            yield from _below(path)
        else:
            yield _Entry((), status.st_mtime_ns // 1_000_000)


def _below(path: str) -> Iterator[_Entry]:
    for directory, directories, names in os.walk(path, onerror=_unless_gone, followlinks=True):
        relative = os.path.relpath(directory, path)
        parts = () if relative == "." else tuple(relative.split(os.sep))
        yield from (_Entry((*parts, name), None) for name in directories)
        for name in names:
            modified_at_ms = _modified_ms(os.path.join(directory, name))
            if modified_at_ms is not None:
                yield _Entry((*parts, name), modified_at_ms)


def _unless_gone(error: OSError) -> None:
    """Ignore that a directory was removed after its parent was read. Raise any other error of listing a directory."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _modified_ms(path: str) -> int | None:
    """Return the modification time of a file in epoch milliseconds, None if the file was removed after its directory
    was read."""
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return None


def _objects(root: str, retries: Retries) -> Iterable[_Entry]:
    """Return the objects below a prefix; if there are none, the object of exactly this key."""
    location = object_location(root)
    bucket, prefix = Bucket(location.bucket_uri, retries), f"{location.key}/" if location.key else ""
    below = [item for item in bucket.list(location.key) if item.key.startswith(prefix)]
    entries = [_Entry(tuple(item.key[len(prefix) :].split("/")), item.modified_at_ms) for item in below]
    return entries or _object(bucket, location.key)


def _object(bucket: Bucket, key: str) -> list[_Entry]:
    """Return the object of exactly this key, or an empty list if there is none."""
    try:
        return [_Entry((), bucket.look(key).modified_at_ms)] if key else []
    except NotFoundError as error:
        if error.kind != "missing-file":
            raise
        return []


def _expression(pattern: str) -> str:
    """Return the regular expression of a name with Hadoop's wildcards: ``*``, ``?``, ``[a-c]``, ``[^a]`` and
    ``{a,b}``."""
    text = re.sub(r"[^\w*?\[\]{},^-]", lambda match: re.escape(match[0]), pattern)
    text = text.replace("*", ".*").replace("?", ".")
    return re.sub(r"\{([^{}]*)\}", lambda match: f"(?:{match[1].replace(',', '|')})", text)
