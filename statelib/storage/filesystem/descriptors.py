"""File system calls on descriptors. Links below a root are never followed, and no file is overwritten.

The functions take normalised absolute paths or open directory descriptors. They raise OSError unless their docstring
names another error; callers convert it with :func:`statelib.storage.filesystem.failures.storage_errors`.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from statelib.crash_points import crash_point
from statelib.errors import InvalidRequestError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: if a FIFO lies in the place of a file, opening it must not wait for a writer
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# the errors of syncing a parent directory in which this user cannot create anything, such as that of a mount point
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened_directory(root: str, parts: Sequence[str] = (), *, create: bool = False) -> Iterator[int]:
    """Yield the descriptor of the directory ``parts`` below ``root``. ``root`` may be a link, the directories below it
    may not.

    With ``create``, missing directories are created (``root`` included), and every directory on the way is made
    durable.
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
        os.fsync(parent)  # even if another process created it, because that process may not have synced it yet
    return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


def _make_directory(path: str) -> None:
    """Create a directory and its parents, and make them durable. Existing ones are made durable too, because the
    process that created them may have been killed before its fsync.

    Raises InvalidRequestError (``not-a-directory``) if a file or something else has the name of one of them."""
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
    """Raise InvalidRequestError (``not-a-directory``) if something else than a directory has this path."""
    if os.path.isdir(path):
        return
    obstacle = "a file" if os.path.isfile(path) else "a link to nothing" if os.path.islink(path) else "something else"
    raise InvalidRequestError(
        f"{path}: expected a directory, found {obstacle}",
        kind="not-a-directory",
        hint="name another directory, or move away what lies there",
    )


@contextmanager
def _existing_is_fine() -> Iterator[None]:
    """Ignore that a directory exists already."""
    try:
        yield
    except FileExistsError:
        return  # whether it is a directory shows when it is opened next


@contextmanager
def opened_file(directory: int, name: str) -> Iterator[int]:
    """Yield the descriptor of a regular file, open for reading. A link, FIFO, device or directory raises OSError
    (ELOOP or ENXIO)."""
    file = os.open(name, _READ, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.ENXIO, "expected a regular file, found something else", name)
        yield file
    finally:
        os.close(file)


def create_file(directory: int, name: str) -> int:
    """Return the descriptor of a new file, open for writing. Raises FileExistsError if anything has that name."""
    return os.open(name, _CREATE, 0o666, dir_fd=directory)


def create_in(path: str, name: str) -> int:
    """Create a file like :func:`create_file`, in the directory at ``path``. If closing the directory fails, the file is
    closed too."""
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
    """Write all of ``data``. A short write is continued, so that a full disk raises an error."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def read_up_to(file: int, size: int, offset: int = 0) -> bytearray:
    """Return ``size`` bytes from ``offset``, or fewer if the file ends before that."""
    data = bytearray(size)
    filled = 0
    view = memoryview(data)
    while filled < size and (count := os.preadv(file, [view[filled:]], offset + filled)):
        filled += count
    view.release()
    del data[filled:]
    return data
