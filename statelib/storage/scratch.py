"""Directories of running processes on a host's own disk: gone when their owner ends, and if it is killed, with the
next one that is made there.

The owner holds a lock of the directory itself (flock), which ends with its process however that ends.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statelib.crash_points import crash_point

PREFIX = "statelib-scratch-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch_directory(parent: str | None, name: str) -> Iterator[str]:
    """A new, empty directory in ``parent`` (None: the system's own); ``name`` is part of its name. What killed
    processes left there is removed first. Raises OSError."""
    parent = parent or tempfile.gettempdir()
    for left in Path(parent).glob(f"{PREFIX}*"):
        _remove_abandoned(left)
    directory, lock = _make(parent, f"{PREFIX}{name}-")
    try:
        crash_point("scratch: made")
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)
        crash_point("scratch: removed")


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
