"""Parsing and writing ``file:`` URIs and absolute paths. No function here does any I/O.

URIs are written as Flink writes them: nothing is percent-encoded, so ``%2e%2e`` is a file of that name and never the
parent directory. Write a URI with :func:`to_uri`, not with :meth:`pathlib.Path.as_uri`.
"""

import re

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)

MAX_PATH_LENGTH = 4096

AllowedRoot = str | tuple[str, ...] | None
"""The directory or directories below which the files of a checkpoint may lie besides its own directory; None for no
other directory."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def local_path(text: str) -> str:
    """Return the normalised absolute path of ``/a/b``, ``file:/a/b``, ``file:///a/b`` or ``file://localhost/a/b``.

    Raises UnsupportedError (``unknown-scheme``) for any other scheme, InvalidRequestError (``outside-root``) for a
    path with a ``..`` component, InvalidRequestError (``bad-path``) for any other text that is no absolute path.
    """
    scheme = _SCHEME.fullmatch(text)
    if scheme and scheme[1].lower() != "file":
        raise UnsupportedError(
            f"{shown(text)}: expected a file: URI or an absolute path, found scheme {shown(scheme[1])}",
            kind="unknown-scheme",
            hint="mount the storage as a file system",
        )
    path = _without_authority(text, scheme[2]) if scheme else text
    if not path.startswith("/"):
        raise InvalidRequestError(f"{shown(text)}: expected an absolute path, found a relative one", kind="bad-path")
    return "/" + "/".join(_checked(text, [part for part in path.split("/") if part not in ("", ".")]))


def relative_parts(text: str) -> tuple[str, ...]:
    """Return the components of a path that is relative to a checkpoint's directory and stays inside it.

    Raises InvalidRequestError (``outside-root``) for an absolute path or a ``..`` component, InvalidRequestError
    (``bad-path``) for an empty path or component, a ``.`` component, a NUL, or more than ``MAX_PATH_LENGTH``
    characters.
    """
    if text.startswith("/"):
        raise InvalidRequestError(
            f"{shown(text)}: expected a path relative to its checkpoint, found an absolute one", kind="outside-root"
        )
    parts = text.split("/")
    if any(part in ("", ".") for part in parts):
        raise InvalidRequestError(f"{shown(text)}: expected names separated by single slashes", kind="bad-path")
    return tuple(_checked(text, parts))


def roots_with(directory: str, allowed: AllowedRoot) -> tuple[str, ...]:
    """Return the directories below which the files of a checkpoint may lie: ``directory`` itself, then ``allowed``."""
    if allowed is None:
        return (directory,)
    return (directory, allowed) if isinstance(allowed, str) else (directory, *allowed)


def to_uri(path: str) -> str:
    """Return the normalised ``file:`` URI of an absolute path or ``file:`` URI. Equal places have equal text.

    Raises like :func:`local_path`."""
    return "file://" + local_path(path)


def parts_below(path: str, root: str) -> tuple[str, ...] | None:
    """Return the components that lead from ``root`` to ``path``, None if ``path`` does not lie below ``root``. Both
    are normalised absolute paths."""
    prefix = root.rstrip("/") + "/"
    return tuple(path[len(prefix) :].split("/")) if path.startswith(prefix) else None


def is_absolute(path: str) -> bool:
    """Return whether a file's path is an absolute path or a URI of any scheme, and not relative to the directory of its
    ``_metadata``."""
    return path.startswith(("/", "file:")) or _URI.match(path) is not None


def file_handle(path: str, size_bytes: int) -> FileStateHandle | RelativeFileStateHandle:
    """Return the handle of a file, given its recorded path: an absolute path or URI, or a path relative to the
    directory of ``_metadata``."""
    return (FileStateHandle if is_absolute(path) else RelativeFileStateHandle)(path, size_bytes)


def absolute_uri(directory: str, handle: StreamStateHandle) -> str:
    """Return the URI of a handle's file. ``directory`` is the directory of the ``_metadata`` that holds the handle.

    Raises InvalidRequestError (``inline-handle``) for inline state, whose bytes are part of ``_metadata``.
    """
    if isinstance(handle, ByteStreamStateHandle):
        raise InvalidRequestError(f"inline state {shown(handle.name)} has no file", kind="inline-handle")
    if isinstance(handle, RelativeFileStateHandle):
        return to_uri("/".join((local_path(directory), *relative_parts(handle.path))))
    return to_uri(handle.path)


def shown(text: str) -> str:
    """Return text of unknown origin in a form that is safe in a message: quoted, escaped, and cut to 200 characters."""
    return repr(text if len(text) <= 200 else f"{text[:200]}...")


def _without_authority(text: str, rest: str) -> str:
    if not rest.startswith("//"):
        return rest
    authority, slash, path = rest[2:].partition("/")
    if authority not in ("", "localhost"):
        raise InvalidRequestError(
            f"{shown(text)}: expected a file on this machine, found host {shown(authority)}", kind="bad-path"
        )
    return slash + path


def _checked(text: str, parts: list[str]) -> list[str]:
    if ".." in parts:
        raise InvalidRequestError(f"{shown(text)}: expected a path without '..'", kind="outside-root")
    if "\0" in text or len(text) > MAX_PATH_LENGTH:
        raise InvalidRequestError(
            f"{shown(text)}: expected at most {MAX_PATH_LENGTH} characters, none of them NUL", kind="bad-path"
        )
    return parts
