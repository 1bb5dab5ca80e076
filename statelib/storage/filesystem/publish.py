"""Atomic publication of a file. Under its name it is either complete and durable or absent, and it never changes.

Source: docs/spec/protocol.md#publishing. The steps are: write a temporary file, sync it, link it to the name (a link
fails if the name is taken, a rename does not), sync the directory. The published bytes are always read back, because on
a network file system the reply of a successful link may be lost, and its repetition fails with "already exists".
"""

import contextlib
import errno
import os

from statelib.crash_points import crash_point
from statelib.errors import ConflictError, CorruptStateError, NotFoundError, UnsupportedError
from statelib.storage.filesystem.descriptors import create_file, opened_directory, opened_file, read_up_to, write_all
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.names import METADATA_NAME, temporary_name
from statelib.storage.uris import local_path

MAX_METADATA_BYTES = 1 << 30

_MAX_TEMPORARIES = 1000


def put_if_absent(directory: str, name: str, data: bytes) -> bytes:
    """Publish ``data`` as file ``name`` unless a file has that name. Return the bytes that the file holds afterwards:
    ``data``, or the bytes of the writer that published first.

    ``directory`` is an absolute path or URI. The file is durable when this returns, even if another writer published
    it. Raises UnsupportedError (``no-hard-links``) if the file system has no hard links.
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
    """Return the error of initializing a location that holds ``_metadata`` already."""
    return ConflictError(
        f"{where}: a checkpoint was published here already, ids are never reused",
        kind="location-taken",
        hint="a catalog restored from a backup must first learn of the checkpoints made since",
    )


def read_published(directory: str, name: str = METADATA_NAME) -> bytes:
    """Return all bytes of a published file.

    Raises NotFoundError (``no-metadata``), CorruptStateError (``not-a-regular-file`` for a link,
    ``metadata-too-large`` for more than ``MAX_METADATA_BYTES``)."""
    path = local_path(directory)
    if os.path.isfile(path) and not os.path.islink(path):
        raise NotFoundError(
            f"{path}: a file, expected the directory of a snapshot, or the {name} file in it",
            kind="no-metadata",
            hint="a savepoint that Flink 1.2 or older wrote as a single file is not read",
        )
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
    """Write and sync the data under a new temporary name, and return that name. Remove the file on failure."""
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
    """Create a temporary file and return its name and descriptor. O_EXCL ensures that each of several writers gets
    another name. A temporary file that a crash left behind is never reused."""
    for number in range(_MAX_TEMPORARIES):
        temporary = temporary_name(name, number)
        with contextlib.suppress(FileExistsError):
            return temporary, create_file(parent, temporary)
    raise ConflictError(
        f"publishing {name}: {_MAX_TEMPORARIES} temporary files lie there already",
        kind="name-taken",
        hint="crashed writers left them: remove the .tmp files",
    )


def _link(parent: int, temporary: str, name: str, path: str) -> None:
    """Link the temporary file to ``name``, unless a file has that name."""
    try:
        os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        return  # another writer was first, or this link succeeded and its reply was lost: the caller reads the bytes
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        raise UnsupportedError(
            f"{path}: this file system has no hard links, which publishing without overwriting needs",
            kind="no-hard-links",
        ) from error
