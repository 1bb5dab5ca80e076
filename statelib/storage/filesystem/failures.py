"""The table that converts errors of the operating system into errors of statelib."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from statelib.errors import (
    ConflictError,
    CorruptStateError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    StatelibError,
)

_STRANGE = (
    CorruptStateError,
    "not-a-regular-file",
    "expected plain files and directories only: below a storage's root no link or special file is followed",
)
_FULL = (RetryableError, "storage-full", "free some space, then run the task again")
_DENIED = (InvalidRequestError, "storage-denied", "check the owner and mode of the storage's directories")

_TABLE: dict[int, tuple[type[StatelibError], str, str]] = {
    errno.ENOENT: (NotFoundError, "missing-file", ""),
    # O_NOFOLLOW fails with ELOOP for a link in place of a file, with ENOTDIR for a link in place of a directory
    errno.ELOOP: _STRANGE,
    errno.ENOTDIR: _STRANGE,
    errno.EISDIR: _STRANGE,
    errno.ENXIO: _STRANGE,
    errno.EEXIST: (ConflictError, "name-taken", "stored files are never overwritten: each try needs a name of its own"),
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: _DENIED,
    errno.ENAMETOOLONG: (InvalidRequestError, "bad-path", ""),
    errno.EINVAL: (InvalidRequestError, "bad-path", ""),
}
_OTHER = (RetryableError, "storage-io", "run the task again; if it stays, the storage itself is in trouble")


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Convert an OSError of the body into an error of statelib. Its message begins with ``what``, which names the
    action and the file."""
    try:
        yield
    except OSError as error:
        cls, kind, hint = _TABLE.get(error.errno or 0, _OTHER)
        raise cls(f"{what}: {error.strerror or error}", kind=kind, hint=hint) from error
