"""Directories of running processes on a host's own disk: gone when their owner ends, and if it is killed, with the
next one that is made there.

The owner holds a lock of the directory itself (flock), which ends with its process however that ends.
"""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statelib.crash_points import crash_point
from statelib.errors import InvalidRequestError, RetryableError, StatelibError

PREFIX = "statelib-scratch-"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch_directory(parent: str | None, name: str) -> Iterator[str]:
    """A new, empty directory in ``parent`` (None: the system's own); ``name`` is part of its name. What killed
    processes left there is removed first.

    An OSError about it, also one of the body, is raised as RetryableError (``scratch-full``) where there is no room,
    else as InvalidRequestError (``no-scratch-directory``); both name the setting."""
    setting = "STATELIB_WORK" if parent else "TMPDIR"
    parent = parent or tempfile.gettempdir()
    for left in Path(parent).glob(f"{PREFIX}*"):
        _remove_abandoned(left)
    with _typed_errors(parent, setting):
        directory, lock = _make(parent, f"{PREFIX}{name}-")
    try:
        crash_point("scratch: made")
        with _typed_errors(directory, setting):
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)
        crash_point("scratch: removed")


@contextmanager
def _typed_errors(directory: str, setting: str) -> Iterator[None]:
    """Turn an error about ``directory`` into one that names the setting. A write on a full disk raises an OSError that
    names no file."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        if not (str(error.filename or "").startswith(directory) or (full and error.filename is None)):
            raise
        raise _unusable(directory, error.strerror or str(error), setting, full=full) from error
    except (RetryableError, InvalidRequestError) as error:  # of what reads and writes files there as in a storage
        if error.kind not in ("storage-full", "storage-denied") or directory not in error.message:
            raise
        raise _unusable(directory, error.message, setting, full=error.kind == "storage-full") from error


def _unusable(directory: str, reason: str, setting: str, *, full: bool) -> StatelibError:
    if full:
        return RetryableError(
            f"scratch space {directory}: {reason}",
            kind="scratch-full",
            hint=f"free some space where {setting} is, or let it name a larger place, then run the task again",
        )
    return InvalidRequestError(
        f"scratch space {directory}: {reason}",
        kind="no-scratch-directory",
        hint=f"let {setting} name a directory that every host of the pipeline may write to",
    )


def _make(parent: str, prefix: str) -> tuple[str, int]:
    """A directory and the lock of it; between the two somebody else may take it for abandoned."""
    while True:
        directory = tempfile.mkdtemp(prefix=prefix, dir=parent)
        lock = _lock(directory)
        if lock is not None:
            return directory, lock


def _remove_abandoned(directory: Path) -> None:
    lock = _lock(str(directory))
    if lock is not None:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _lock(directory: str) -> int | None:
    """The descriptor that holds it; None if somebody else does, or it is gone."""
    try:
        opened = os.open(directory, _DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(directory, follow_symlinks=False), os.fstat(opened)):
            return opened
    except OSError:
        pass
    os.close(opened)
    return None
