"""Atomic publication: a file appears whole and durable under its name, or not at all, and only once.

Source: protocol of ``_metadata``: temporary file, fsync, link (which fails where the name is taken,
as rename would not), fsync of the directory. The answer is always read back, because a reply lost
on a network file system turns one's own success into "already exists".
"""

import contextlib
import errno
import os

from statelib.crash_points import crash_point
from statelib.errors import ConflictError, CorruptStateError, NotFoundError, UnsupportedError
from statelib.storage.filesystem.descriptors import create_file, opened_directory, opened_file, read_up_to, write_all
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.uris import local_path

METADATA_NAME = "_metadata"
MAX_METADATA_BYTES = 1 << 30

_MAX_TEMPORARIES = 1000


def put_if_absent(directory: str, name: str, data: bytes) -> bytes:
    """Give ``data`` the name unless something has it; return the bytes that have it afterwards.

    ``directory`` is an absolute path or URI. Durable when it returns, whoever wrote it.
    Raises UnsupportedError (``no-hard-links``) where the file system can not link.
    """
    path = local_path(directory)
    with storage_errors(f"publishing {name} in {path}"), opened_directory(path) as parent:
        temporary = _write_temporary(parent, name, data)
        try:
            crash_point("publish: temporary file durable")
            _link(parent, temporary, name, path)
            crash_point("publish: linked")
        finally:
            os.unlink(temporary, dir_fd=parent)
        crash_point("publish: temporary file removed")
        os.fsync(parent)
    crash_point("publish: durable")
    return read_published(directory, name)


def location_taken(where: str) -> ConflictError:
    """What a begin raises where ``_metadata`` lies already."""
    return ConflictError(
        f"{where}: a checkpoint was published here already, ids are never reused",
        kind="location-taken",
        hint="a catalog restored from a backup must first learn of the checkpoints made since",
    )


def read_published(directory: str, name: str = METADATA_NAME) -> bytes:
    """All bytes of a published file.

    Raises NotFoundError (``no-metadata``), CorruptStateError (``not-a-regular-file`` for a link,
    ``metadata-too-large``)."""
    path = local_path(directory)
    try:
        with (
            storage_errors(f"reading {name} in {path}"),
            opened_directory(path) as parent,
            opened_file(parent, name) as file,
        ):
            size = os.fstat(file).st_size
            if size > MAX_METADATA_BYTES:
                raise CorruptStateError(
                    f"{path}/{name}: {size} bytes, expected at most {MAX_METADATA_BYTES}", kind="metadata-too-large"
                )
            return bytes(read_up_to(file, size))
    except NotFoundError:
        raise NotFoundError(
            f"{path}: no {name} file, hence no completed checkpoint here",
            kind="no-metadata",
            hint="statelib checkpoints list shows those there are",
        ) from None


def _write_temporary(parent: int, name: str, data: bytes) -> str:
    """Write and sync the data under a name that nobody else has; remove it again on failure."""
    temporary, file = _create_temporary(parent, name)
    try:
        try:
            crash_point("publish: temporary file created")
            write_all(file, data)
            os.fsync(file)
        finally:
            os.close(file)
    except BaseException:
        os.unlink(temporary, dir_fd=parent)
        raise
    return temporary


def _create_temporary(parent: int, name: str) -> tuple[str, int]:
    """O_EXCL hands each racer a name of its own. One that a crash left behind is never reused."""
    for number in range(_MAX_TEMPORARIES):
        temporary = f".{name}.{number}.tmp"
        with contextlib.suppress(FileExistsError):
            return temporary, create_file(parent, temporary)
    raise ConflictError(
        f"publishing {name}: {_MAX_TEMPORARIES} temporary files lie there already",
        kind="name-taken",
        hint="crashed writers left them: remove the .tmp files",
    )


def _link(parent: int, temporary: str, name: str, path: str) -> None:
    try:
        os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        return  # somebody was first, perhaps we ourselves: the bytes that are read back tell
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        raise UnsupportedError(
            f"{path}: this file system has no hard links, which publishing without overwriting needs",
            kind="no-hard-links",
        ) from error
