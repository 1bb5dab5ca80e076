"""What lies under the path of a source: a file, a directory, or a pattern of Spark's, on a file system or in a bucket.

A path that only Spark can reach (HDFS, a table) is refused by name: nothing is known of it here.
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
"""Hadoop's names of schemes."""
_SPECIAL = re.compile(r"[*?\[\]{}]")


@dataclass(frozen=True)
class SourceListing:
    """``exists``: whether anything lies there, a directory without files included. ``files``: how many files hold data,
    as Spark sees it: their names begin neither with ``_`` nor with ``.``. ``newest_ms``: when the last of all was
    changed, by the storage's clock; None where there is none."""

    exists: bool
    files: int
    newest_ms: int | None


@dataclass(frozen=True)
class _Entry:
    """``below``: the names from the directory that is listed down to the entry. ``modified_at_ms``: None for a
    directory."""

    below: tuple[str, ...]
    modified_at_ms: int | None


def look_at_source(path: str, retries: Retries) -> SourceListing:
    """Return what lies under a path of a source at this moment.

    Raises UnsupportedError (``source-not-visible``), and what the storage raises while it is in trouble."""
    root, pattern = _split(_known(path))
    entries = _objects(root, retries) if is_object(root) else _files(root)
    matches = [re.compile(_expression(part)) for part in pattern]
    found = [entry for entry in entries if _lies_under(entry, matches)]
    times = [entry.modified_at_ms for entry in found if entry.modified_at_ms is not None]
    data = [entry for entry in found if entry.modified_at_ms is not None and not _is_hidden(entry, len(matches))]
    return SourceListing(bool(found), len(data), max(times, default=None))


def _known(path: str) -> str:
    found = _SCHEME.match(path)
    scheme = found[1].lower() if found else "file"
    path = f"{_HADOOPS[scheme]}{path[len(scheme) :]}" if scheme in _HADOOPS else path
    if (scheme == "file" and (found or path.startswith("/"))) or is_object(path):
        return path
    raise UnsupportedError(
        f"source {path}: whether it is there cannot be looked at from here: expected an absolute path, or a file:, "
        "s3:, s3a:, gs:, az: or abfss: URI",
        kind="source-not-visible",
        hint="let 'ready' in the pipeline file name an asset, or let a sensor of your own wait for it",
    )


def _split(path: str) -> tuple[str, tuple[str, ...]]:
    """The directory up to the first name with a wildcard, and the names from there on."""
    parts = path.split("/")
    first = next((i for i, part in enumerate(parts) if _SPECIAL.search(part)), len(parts))
    return "/".join(parts[:first]), tuple(part for part in parts[first:] if part)


def _lies_under(entry: _Entry, pattern: list[re.Pattern[str]]) -> bool:
    return len(entry.below) >= len(pattern) and all(
        part.fullmatch(name) for part, name in zip(pattern, entry.below, strict=False)
    )


def _is_hidden(entry: _Entry, matched: int) -> bool:
    """Names that the path itself gives are never hidden."""
    return any(name.startswith(("_", ".")) for name in entry.below[matched:])


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
    """A directory that was removed since its parent was read holds nothing; one that cannot be read is an error."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _modified_ms(path: str) -> int | None:
    """None for a file that was removed since its directory was read."""
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return None


def _objects(root: str, retries: Retries) -> Iterable[_Entry]:
    """The objects at and below a prefix; a bucket has no directories but those that objects' keys make."""
    location = object_location(root)
    bucket, prefix = Bucket(location.bucket_uri, retries), f"{location.key}/" if location.key else ""
    below = [item for item in bucket.list(location.key) if item.key.startswith(prefix)]
    found = [_Entry(tuple(item.key[len(prefix) :].split("/")), item.modified_at_ms) for item in below]
    return found or _object(bucket, location.key)


def _object(bucket: Bucket, key: str) -> list[_Entry]:
    """The object of exactly this key, if there is one."""
    try:
        return [_Entry((), bucket.look(key).modified_at_ms)] if key else []
    except NotFoundError as error:
        if error.kind != "missing-file":
            raise
        return []


def _expression(pattern: str) -> str:
    """A name with wildcards as Hadoop has them: ``*``, ``?``, ``[a-c]``, ``[^a]`` and ``{a,b}``."""
    text = re.sub(r"[^\w*?\[\]{},^-]", lambda found: re.escape(found[0]), pattern)
    text = text.replace("*", ".*").replace("?", ".")
    return re.sub(r"\{([^{}]*)\}", lambda found: f"(?:{found[1].replace(',', '|')})", text)
