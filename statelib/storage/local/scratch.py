"""Scratch directories of running processes on a host's own disk. The owner removes its directory when it ends. If the
owner is killed, the next process that makes a scratch directory there removes it.

The owner holds a lock on the directory itself (flock). The lock ends with the process, however that ends.
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
    """Yield a new, empty directory in ``parent``, None for the system's own temporary directory. ``name`` is part of
    its name. Directories of killed processes are removed from ``parent`` first.

    An OSError about the directory, also one of the body, is raised as RetryableError (``scratch-full``) if the disk is
    full, otherwise as InvalidRequestError (``no-scratch-directory``). Both name the setting of ``parent``."""
    setting = "STATELIB_WORK" if parent else "TMPDIR"
    parent = parent or tempfile.gettempdir()
    for candidate in Path(parent).glob(f"{PREFIX}*"):
        _remove_abandoned(candidate)
    with _typed_errors(parent, setting):
        directory, lock = _make(parent, f"{PREFIX}{name}-")
    try:
        crash_point("scratch: made")
        with _typed_errors(directory, setting):
            yield directory
    finally:
        try:
            shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(lock)
        crash_point("scratch: removed")


@contextmanager
def _typed_errors(directory: str, setting: str) -> Iterator[None]:
    """Convert an error about ``directory`` into one that names the setting. An OSError without a file name counts if it
    is the error of a full disk, because a write raises such an error."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        if not (str(error.filename or "").startswith(directory) or (full and error.filename is None)):
            raise
        raise _unusable(directory, error.strerror or str(error), setting, full=full) from error
    except (RetryableError, InvalidRequestError) as error:  # storage functions on files in the directory
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
    """Make a directory and return it with the descriptor of its lock. Try again if another process removed the
    directory as abandoned before the lock was taken."""
    while True:
        directory = tempfile.mkdtemp(prefix=prefix, dir=parent)
        lock = _lock(directory)
        if lock is not None:
            return directory, lock


def _remove_abandoned(directory: Path) -> None:
    """Remove a directory unless a running process holds its lock."""
    lock = _lock(str(directory))
    if lock is not None:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def _lock(directory: str) -> int | None:
    """Lock a directory and return the descriptor that holds the lock. Return None if another process holds it, or the
    directory is gone."""
    try:
        descriptor = os.open(directory, _DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(directory, follow_symlinks=False), os.fstat(descriptor)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
