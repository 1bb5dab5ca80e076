"""Removing the files of checkpoints: the port, and its implementation on file systems. Only files below given roots are
removed.

Removing a file that is gone already succeeds, so that every removal may be repeated after a crash.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from statelib.crash_points import crash_point
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.storage.filesystem.descriptors import create_file, opened_directory
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.inventory import StoredFile, list_files
from statelib.storage.uris import local_path, parts_below, shown, to_uri

_MAX_PROBES = 1000


class CheckpointRemover(Protocol):
    """The operations that retention, gc and the orphan sweep need from a storage.

    ``roots`` are absolute URIs. A method that removes raises InvalidRequestError (``outside-root``), before anything
    is removed, for a path that lies below none of them."""

    @property
    def files_at_once(self) -> int:
        """The best number of files for one call of :meth:`remove_files`. It is larger than one where one request
        removes many files."""
        ...

    def list_files(self, directory: str) -> list[StoredFile]:
        """Return all files below a directory, an empty list if there is no such directory."""
        ...

    def list_directories(self, directory: str) -> frozenset[str]:
        """Return the URIs of the directories directly in a directory, an empty set if there is no such directory."""
        ...

    def now_ms(self, directory: str) -> int:
        """Return the time of the storage's own clock in epoch milliseconds. It is the modification time of a probe
        file, which is written in ``directory`` and removed again."""
        ...

    def remove_file(self, uri: str, roots: Sequence[str]) -> bool:
        """Remove a file durably. Return False if it was gone already."""
        ...

    def remove_files(self, uris: Sequence[str], roots: Sequence[str]) -> None:
        """Remove files durably. Files that are gone already are ignored. If this raises, some or all of the files may
        be removed."""
        ...

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        """Remove an empty directory durably. Return False if it was gone already or is not empty. A root itself is
        refused."""
        ...


@dataclass(frozen=True)
class FileSystemRemover:
    """A :class:`CheckpointRemover` of local, shared and mounted file systems. Links below a root are removed, never
    followed."""

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
                name = f".clock.{number}.tmp"
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


def is_below(uri: str, roots: Sequence[str]) -> bool:
    """Return whether a path lies below one of the roots. A root itself and a path with ``..`` do not."""
    try:
        _below_root(uri, roots)
    except InvalidRequestError:
        return False
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


def outside_root(uri: str, roots: Sequence[str]) -> InvalidRequestError:
    """Return the error of removing a path that lies below none of the roots."""
    return InvalidRequestError(
        f"removing {shown(uri)}: expected a path below {' or '.join(map(shown, roots)) or 'a root'}",
        kind="outside-root",
        hint="nothing outside the checkpoint storage is ever deleted",
    )
