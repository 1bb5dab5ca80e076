"""Where bytes lie, as text: ``file:`` URIs and absolute paths, parsed without touching a disk.

The text is Flink's: nothing in it is percent-encoded, so ``%2e%2e`` is a file of that name and
never a way up. Write one with :func:`to_uri`, not with :meth:`pathlib.Path.as_uri`.
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
"""Where the files of a checkpoint may lie besides its own directory: below a directory, some directories, nowhere."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def local_path(text: str) -> str:
    """The normalised absolute path of ``/a/b``, ``file:/a/b``, ``file:///a/b`` or ``file://localhost/a/b``.

    Raises UnsupportedError (``unknown-scheme``) for any other scheme, InvalidRequestError:
    ``outside-root`` for a path with a ``..`` component, ``bad-path`` for all else that is no path.
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
    """The components of a path relative to a checkpoint's directory, which it can not leave.

    Raises InvalidRequestError: ``outside-root`` for an absolute path or a ``..`` component,
    ``bad-path`` for an empty path or component, ``.``, a NUL, or too great a length.
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
    """The directory itself, and the others."""
    if allowed is None:
        return (directory,)
    return (directory, allowed) if isinstance(allowed, str) else (directory, *allowed)


def to_uri(path: str) -> str:
    """The ``file:`` URI of an absolute path (or URI), normalised: equal places have equal text."""
    return "file://" + local_path(path)


def parts_below(path: str, root: str) -> tuple[str, ...] | None:
    """Components that lead from ``root`` to ``path`` (both normalised), None where it lies elsewhere."""
    prefix = root.rstrip("/") + "/"
    return tuple(path[len(prefix) :].split("/")) if path.startswith(prefix) else None


def file_handle(path: str, size_bytes: int) -> FileStateHandle | RelativeFileStateHandle:
    """The handle of a file whose path was written down: absolute path or URI, or relative to its ``_metadata``."""
    absolute = path.startswith(("/", "file:"))
    return (FileStateHandle if absolute else RelativeFileStateHandle)(path, size_bytes)


def absolute_uri(directory: str, handle: StreamStateHandle) -> str:
    """The URI of a handle's file, given the directory of its ``_metadata``.

    Raises InvalidRequestError (``inline-handle``) for bytes that live inside the metadata.
    """
    if isinstance(handle, ByteStreamStateHandle):
        raise InvalidRequestError(f"inline state {shown(handle.name)} has no file", kind="inline-handle")
    if isinstance(handle, RelativeFileStateHandle):
        return to_uri("/".join((local_path(directory), *relative_parts(handle.path))))
    return to_uri(handle.path)


def shown(text: str) -> str:
    """Foreign text as it may stand in a message: quoted, escaped, cut."""
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
