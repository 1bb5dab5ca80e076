"""Removing the files of checkpoints on file systems."""

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from statelib.crash_points import crash_point
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.storage.filesystem.descriptors import create_file, opened_directory
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.inventory import list_files
from statelib.storage.names import temporary_name
from statelib.storage.ports.inventory import StoredFile
from statelib.storage.ports.removal import outside_root
from statelib.storage.uris import local_path, parts_below, to_uri

_MAX_PROBES = 1000


@dataclass(frozen=True)
class FileSystemRemover:
    """A :class:`~statelib.storage.ports.removal.CheckpointRemover` of local, shared and mounted file systems. Links
    below a root are removed, never followed."""

    files_at_once: ClassVar[int] = 1

    def list_files(self, directory: str) -> list[StoredFile]:
        try:
            return list_files(directory)
        except NotFoundError:
            return []

    def list_directories(self, directory: str) -> frozenset[str]:
        path = local_path(directory)
        with (
            storage_errors(f"listing {path}"),
            contextlib.suppress(FileNotFoundError),
            opened_directory(path) as parent,
            os.scandir(parent) as entries,
        ):
            return frozenset(to_uri(f"{path}/{e.name}") for e in entries if e.is_dir(follow_symlinks=False))
        return frozenset()

    def now_ms(self, directory: str) -> int:
        path = local_path(directory)
        with storage_errors(f"reading the clock of {path}"), opened_directory(path) as parent:
            for number in range(_MAX_PROBES):
                name = temporary_name("clock", number)
                with contextlib.suppress(FileExistsError):
                    file = create_file(parent, name)
                    try:
                        crash_point("clock: probe made")
                        return os.fstat(file).st_mtime_ns // 1_000_000
                    finally:
                        os.close(file)
                        os.unlink(name, dir_fd=parent)
        raise InvalidRequestError(
            f"{path}: {_MAX_PROBES} clock probes lie there already", kind="bad-path", hint="remove the .clock files"
        )

    def remove_file(self, uri: str, roots: Sequence[str]) -> bool:
        root, parts = _below_root(uri, roots)
        with (
            storage_errors(f"removing {uri}"),
            contextlib.suppress(FileNotFoundError),
            opened_directory(root, parts[:-1]) as parent,
        ):
            removed = _unlink(parent, parts[-1])
            os.fsync(parent)  # even if it was gone: the process that removed it may have been killed before its fsync
            return removed
        return False

    def remove_files(self, uris: Sequence[str], roots: Sequence[str]) -> None:
        for uri in uris:
            _below_root(uri, roots)
        for uri in uris:
            self.remove_file(uri, roots)

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        root, parts = _below_root(uri, roots)
        with (
            storage_errors(f"removing directory {uri}"),
            contextlib.suppress(FileNotFoundError),
            opened_directory(root, parts[:-1]) as parent,
        ):
            crash_point("removal: before directory")
            try:
                os.rmdir(parts[-1], dir_fd=parent)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                return False
            crash_point("removal: directory removed")
            os.fsync(parent)
            return True
        return False


def _unlink(parent: int, name: str) -> bool:
    try:
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise IsADirectoryError(errno.EISDIR, "expected a file, found a directory")
        crash_point("removal: before file")
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return False
    crash_point("removal: file removed")
    return True


def _below_root(uri: str, roots: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the root below which a path lies, and the components from the root to the path. Raise InvalidRequestError
    (``outside-root``) if there is no such root."""
    path = local_path(uri)
    for root in map(local_path, roots):
        parts = parts_below(path, root)
        if parts:
            return root, parts
    raise outside_root(to_uri(path), roots)
