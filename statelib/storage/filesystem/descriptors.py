"""POSIX moves on files and directories: links are never followed below a root, nothing is overwritten.

Everything here takes normalised absolute paths or open directory descriptors, and raises OSError, if nothing else is
said; callers wrap it in :func:`statelib.storage.filesystem.failures.storage_errors`.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from statelib.crash_points import crash_point
from statelib.errors import InvalidRequestError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO that somebody put in a file's place must not wait for its writer
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# what syncing a directory says that nobody makes directories in: that of a mount point, or another user's
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened_directory(root: str, parts: Sequence[str] = (), *, create: bool = False) -> Iterator[int]:
    """Descriptor of the directory ``parts`` below ``root``. ``root`` itself may be a link, the rest not.

    ``create`` makes what is missing (root included) and makes every directory on the way durable.
    """
    if create:
        _make_directory(root)
    directory = os.open(root, _DIRECTORY)
    try:
        for part in parts:
            parent, directory = directory, _child(directory, part, create)
            os.close(parent)
        yield directory
    finally:
        os.close(directory)


def _child(parent: int, name: str, create: bool) -> int:
    if create:
        crash_point("directory: before")
        with _existing_is_fine():
            os.mkdir(name, dir_fd=parent)
        crash_point("directory: made")
        os.fsync(parent)  # also where another process made it: it may not have come to its own fsync yet
    return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


def _make_directory(path: str) -> None:
    """Make a directory and its parents. Durable also where another process made it, which may have been killed before
    its own fsync.

    Raises InvalidRequestError (``not-a-directory``) for what lies in the place of one of them."""
    parent = os.path.dirname(path)
    if not os.path.isdir(path):
        _make_directory(parent)
        crash_point("directory: before")
        with _existing_is_fine():
            os.mkdir(path)
        crash_point("directory: made")
        _check_directory(path)
    try:
        with opened_directory(parent) as directory:
            os.fsync(directory)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise


def _check_directory(path: str) -> None:
    """Refuse what was there before: everybody who opens it would only learn that it is no directory."""
    if os.path.isdir(path):
        return
    found = "a file" if os.path.isfile(path) else "a link to nothing" if os.path.islink(path) else "something else"
    raise InvalidRequestError(
        f"{path}: expected a directory, found {found}",
        kind="not-a-directory",
        hint="name another directory, or move away what lies there",
    )


@contextmanager
def _existing_is_fine() -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        return  # whoever opens it next finds out whether it is a directory


@contextmanager
def opened_file(directory: int, name: str) -> Iterator[int]:
    """Descriptor of a regular file for reading; a link, FIFO, device or directory is ELOOP or ENXIO."""
    file = os.open(name, _READ, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.ENXIO, "expected a regular file, found something else", name)
        yield file
    finally:
        os.close(file)


def create_file(directory: int, name: str) -> int:
    """Descriptor of a new file for writing; FileExistsError if anything has that name."""
    return os.open(name, _CREATE, 0o666, dir_fd=directory)


def create_in(path: str, name: str) -> int:
    """As :func:`create_file`, in the directory at ``path``. If only closing that fails, the file is not left open."""
    file = None
    try:
        with opened_directory(path) as directory:
            file = create_file(directory, name)
    except OSError:
        if file is not None:
            os.close(file)
        raise
    return file


def write_all(file: int, data: bytes | bytearray | memoryview) -> None:
    """Write everything; a short write is continued, so that a full disk becomes an error."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def read_up_to(file: int, size: int, offset: int = 0) -> bytearray:
    """``size`` bytes from ``offset``; fewer where the file ends before."""
    data = bytearray(size)
    filled = 0
    view = memoryview(data)
    while filled < size and (count := os.preadv(file, [view[filled:]], offset + filled)):
        filled += count
    view.release()
    del data[filled:]
    return data
