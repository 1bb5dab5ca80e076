"""The meaning of paths and ids on the command line: which of the two a text is, and files of this machine."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statelib.errors import InvalidRequestError, NotFoundError
from statelib.flows import wiring
from statelib.flows.views.inspection import is_id
from statelib.storage.uris import local_path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_NO_ID = ("ambiguous-id", "bad-checkpoint", "bad-name", "missing-setting", "no-catalog", "no-checkpoint", "no-pipeline")
"""Kinds of errors that a mistyped path causes when it is looked up as an id."""


def path_of(snapshot: str) -> str:
    """Return the absolute path or URI that the text names; '' if it is the name of a checkpoint, such as ``sales/4``.

    A text that could be both names a path only if there is a snapshot. ``./sales`` is always a path."""
    if is_id(snapshot) and not _has_snapshot(Path(snapshot)):
        return ""
    return snapshot if ":" in snapshot and not Path(snapshot).exists() else in_storage(_absolute(snapshot))


def _has_snapshot(path: Path) -> bool:
    return path.is_file() or (path / "_metadata").exists()


def absolute_target(target: str) -> str:
    """Return the directory or URI as other processes understand it: a relative path starts at this process's working
    directory."""
    return target if _SCHEME.match(target) else _absolute(target)


def in_storage(target: str) -> str:
    """Return the path of a file or directory in the deployment's storage as its root is written in the settings, if it
    was named through other links. The catalog and the manifests have that path. Return anything else unchanged."""
    root = wiring.storage_root() or ""
    path, root_path = (local_path(text) if text[:5].lower() == "file:" else text for text in (target, root))
    root_path = root_path.rstrip("/")
    if not (path.startswith("/") and root_path.startswith("/")) or path.startswith(f"{root_path}/"):
        return target
    real, real_root = os.path.realpath(path), os.path.realpath(root_path)
    return root_path + real.removeprefix(real_root) if real.startswith(f"{real_root}/") else target


def _absolute(text: str) -> str:
    """Return the absolute path of a path on this machine. If it has ``..``, links in it are resolved, because no URI
    may have ``..``."""
    path = Path(text).absolute()
    return str(path.resolve() if ".." in path.parts else path)


@contextmanager
def explained_as_id(snapshot: str) -> Iterator[None]:
    """Look up a text as an id within this block. An error about the id also names the path that does not exist."""
    try:
        yield
    except (InvalidRequestError, NotFoundError) as error:
        if error.kind not in _NO_ID:
            raise
        path = Path(_absolute(snapshot))
        reason = f"{path} has no _metadata" if path.exists() else f"there is no {path}"
        raise type(error)(
            f"{snapshot}: as a path, {reason}; as the name of a checkpoint, {error.message}",
            kind=error.kind,
            hint=error.hint or "statelib checkpoints list shows the ids",
        ) from error


def local_file(text: str, option: str) -> Path:
    """Return the path on this machine that an option names. A ``file:`` URI is such a path.

    Raise InvalidRequestError (``not-a-local-path``) for any other URI, and what :func:`local_path` raises."""
    if not _URI.match(text):
        return Path(text)
    if text[:5].lower() == "file:":
        return Path(local_path(text))
    raise InvalidRequestError(
        f"{option} {text}: expected a path on this machine, found a URI",
        kind="not-a-local-path",
        hint="name a local path, and copy from or to the object store with its own tool",
    )
