"""Taking bytes away: the only module that removes what a checkpoint published. Only below known roots.

Removing what is gone is success, so that every removal may be repeated after a crash.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from statelib.errors import InvalidRequestError, NotFoundError
from statelib.storage.descriptors import create_file, opened_directory
from statelib.storage.failures import storage_errors
from statelib.storage.inventory import StoredFile, list_files
from statelib.storage.uris import local_path, parts_below, shown, to_uri

_MAX_PROBES = 1000


class CheckpointRemover(Protocol):
    """What gc asks of a storage. ``roots``: absolute URIs; a path below none of them is refused
    with InvalidRequestError (``outside-root``) before anything is touched."""

    def list_files(self, directory: str) -> list[StoredFile]:
        """All files below a directory, nothing where there is no such directory."""
        ...

    def now_ms(self, directory: str) -> int:
        """The storage's own clock, as the modification time of a probe written just now."""
        ...

    def remove_file(self, uri: str, roots: Sequence[str]) -> bool:
        """Durably; False if it was gone already."""
        ...

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        """If it is empty, and it is no root; False if it was gone or is not empty."""
        ...


@dataclass(frozen=True)
class FileSystemRemover:
    """On a local, shared or mounted file system. Links below a root are removed, never followed."""

    def list_files(self, directory: str) -> list[StoredFile]:
        try:
            return list_files(directory)
        except NotFoundError:
            return []

    def now_ms(self, directory: str) -> int:
        path = local_path(directory)
        with storage_errors(f"reading the clock of {path}"), opened_directory(path) as parent:
            for number in range(_MAX_PROBES):
                name = f".clock.{number}.tmp"
                with contextlib.suppress(FileExistsError):
                    file = create_file(parent, name)
                    try:
                        return os.fstat(file).st_mtime_ns // 1_000_000
                    finally:
                        os.close(file)
                        os.unlink(name, dir_fd=parent)
        raise InvalidRequestError(
            f"{path}: {_MAX_PROBES} clock probes lie there already", kind="bad-path", hint="remove the .clock files"
        )

    def remove_file(self, uri: str, roots: Sequence[str]) -> bool:
        root, parts = _placed(uri, roots)
        with (
            storage_errors(f"removing {uri}"),
            contextlib.suppress(FileNotFoundError),
            opened_directory(root, parts[:-1]) as parent,
        ):
            if stat.S_ISDIR(os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode):
                raise IsADirectoryError(errno.EISDIR, "expected a file, found a directory")
            os.unlink(parts[-1], dir_fd=parent)
            os.fsync(parent)
            return True
        return False

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        root, parts = _placed(uri, roots)
        with (
            storage_errors(f"removing directory {uri}"),
            contextlib.suppress(FileNotFoundError),
            opened_directory(root, parts[:-1]) as parent,
        ):
            try:
                os.rmdir(parts[-1], dir_fd=parent)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                return False
            os.fsync(parent)
            return True
        return False


def is_below(uri: str, roots: Sequence[str]) -> bool:
    """Whether a path lies below one of the roots, and not just beside it or through ``..``."""
    try:
        _placed(uri, roots)
    except InvalidRequestError:
        return False
    return True


def _placed(uri: str, roots: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The root that a path lies below, and the way from there."""
    path = local_path(uri)
    for root in map(local_path, roots):
        parts = parts_below(path, root)
        if parts:
            return root, parts
    raise InvalidRequestError(
        f"removing {shown(to_uri(path))}: expected a path below {' or '.join(map(shown, roots)) or 'a root'}",
        kind="outside-root",
        hint="nothing outside the checkpoint storage is ever deleted",
    )
