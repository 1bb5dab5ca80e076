"""Taking bytes away: what removes what a checkpoint published, here on file systems. Only below known roots.

Removing what is gone is success, so that every removal may be repeated after a crash.
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
    """What gc asks of a storage. ``roots``: absolute URIs; a path below none of them is refused
    with InvalidRequestError (``outside-root``) before anything is touched."""

    @property
    def files_at_once(self) -> int:
        """How many files :meth:`remove_files` is best given: more than one where many cost one request."""
        ...

    def list_files(self, directory: str) -> list[StoredFile]:
        """All files below a directory, nothing where there is no such directory."""
        ...

    def list_directories(self, directory: str) -> frozenset[str]:
        """The URIs of the directories that lie in a directory."""
        ...

    def now_ms(self, directory: str) -> int:
        """The storage's own clock, as the modification time of a probe written just now."""
        ...

    def remove_file(self, uri: str, roots: Sequence[str]) -> bool:
        """Durably; False if it was gone already."""
        ...

    def remove_files(self, uris: Sequence[str], roots: Sequence[str]) -> None:
        """Some of them, or all, where it raises. Those that are gone already are success."""
        ...

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        """If it is empty, and it is no root; False if it was gone or is not empty."""
        ...


@dataclass(frozen=True)
class FileSystemRemover:
    """On a local, shared or mounted file system. Links below a root are removed, never followed."""

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
        root, parts = _placed(uri, roots)
        with (
            storage_errors(f"removing {uri}"),
            contextlib.suppress(FileNotFoundError),
            opened_directory(root, parts[:-1]) as parent,
        ):
            removed = _unlink(parent, parts[-1])
            os.fsync(parent)  # also where it was gone: who removed it may have been killed before its own fsync
            return removed
        return False

    def remove_files(self, uris: Sequence[str], roots: Sequence[str]) -> None:
        for uri in uris:
            self.remove_file(uri, roots)

    def remove_directory(self, uri: str, roots: Sequence[str]) -> bool:
        root, parts = _placed(uri, roots)
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
    raise outside_root(to_uri(path), roots)


def outside_root(uri: str, roots: Sequence[str]) -> InvalidRequestError:
    return InvalidRequestError(
        f"removing {shown(uri)}: expected a path below {' or '.join(map(shown, roots)) or 'a root'}",
        kind="outside-root",
        hint="nothing outside the checkpoint storage is ever deleted",
    )
