"""The place of a Parquet table in a directory of a file system.

A commit is prepared in ``<table>/_staging/`` and becomes visible by one renaming of its directory to
``<table>/commit-00000001/``. That fails if the directory of that commit exists. So there is one commit of each number,
and readers see whole commits only.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from statelib.crash_points import crash_point
from statelib.errors import StatelibError
from statelib.model.key_groups import KeyGroupRange
from statelib.publication.parquet.manifest import MANIFEST_NAME
from statelib.publication.parquet.place import FilesOf, Listing, commit_name, range_prefix
from statelib.publication.target import PublishedTable, foreign, taken
from statelib.storage.filesystem.descriptors import opened_directory
from statelib.storage.filesystem.failures import storage_errors

_COMMIT = re.compile(r"commit-(\d{8,})")
_STAGED = re.compile(r"(\d+)-[0-9a-f]{32}")
_STAGING = "_staging"
_PART = re.compile(r"[0-9-]+\.parquet")


class DirectoryPlace:
    """A :class:`~statelib.publication.parquet.place.ParquetPlace` in a directory. ``attempt``: a text that no other
    publisher has, 32 hexadecimal digits."""

    def __init__(self, table: PublishedTable, directory: str, attempt: str) -> None:
        self._table = table
        self._directory = directory
        self._attempt = attempt

    def listing(self) -> Listing:
        numbers: list[int] = []
        sizes: dict[str, int] = {}
        with storage_errors(f"reading {self._directory}"):
            for entry in _entries(self._directory):
                commit = _COMMIT.fullmatch(entry.name)
                if commit is None:
                    raise foreign(self._table, f"{entry.name} was not published by statelib")
                numbers.append(int(commit[1]))
                sizes |= self._sizes(entry.name)
        return Listing(tuple(sorted(numbers)), sizes)

    def read_manifest(self, number: int) -> bytes:
        path = f"{self._directory}/{commit_name(number)}/{MANIFEST_NAME}"
        with storage_errors(f"reading {path}"), open(path, "rb") as file:
            return file.read()

    @contextmanager
    def opened(self, path: str) -> Iterator[BinaryIO]:
        with storage_errors(f"reading {path}"), open(f"{self._directory}/{path}", "rb") as file:
            yield file

    @contextmanager
    def preparing(self, number: int) -> Iterator["_StagedDirectory"]:
        staging = f"{self._directory}/{_STAGING}/{number}-{self._attempt}"
        with storage_errors(f"making {staging}"):
            with opened_directory(self._directory, (_STAGING,), create=True):
                os.mkdir(staging)
            crash_point("publication: staging made")
        try:
            yield _StagedDirectory(self._table, number, self._directory, staging)
        except (StatelibError, OSError) as error:
            if os.path.isdir(staging):
                raise
            raise taken(self._table, number) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def tidy(self, retain: int | None, files_of: FilesOf) -> None:
        """Remove what was prepared first: the directory of a removed commit must not be free for a publisher that was
        overtaken."""
        numbers = self.listing().numbers
        newest = max(numbers, default=0)
        with storage_errors(f"tidying {self._directory}"):
            for name in sorted(_names(f"{self._directory}/{_STAGING}")):
                staged = _STAGED.fullmatch(name)
                if staged and int(staged[1]) <= newest:
                    crash_point("publication: before removal")
                    shutil.rmtree(f"{self._directory}/{_STAGING}/{name}", ignore_errors=True)
                    crash_point("publication: removed")
            if retain is not None:
                self._remove_old_files(numbers, retain, files_of)

    def _remove_old_files(self, numbers: Sequence[int], retain: int, files_of: FilesOf) -> None:
        needed = {path for number in numbers[-retain:] for path in files_of(number)}
        for number in numbers[:-retain]:
            directory = f"{self._directory}/{commit_name(number)}"
            names = sorted(_names(directory), key=lambda name: (name != MANIFEST_NAME, name))
            unused = [name for name in names if f"{commit_name(number)}/{name}" not in needed]
            for name in unused:
                crash_point("publication: before removal")
                with suppress(FileNotFoundError):  # another publisher tidies, too
                    os.unlink(f"{directory}/{name}")
                crash_point("publication: removed")
            if len(unused) == len(names):
                with suppress(FileNotFoundError):
                    os.rmdir(directory)
                crash_point("publication: removed")

    def _sizes(self, commit: str) -> dict[str, int]:
        """Return the sizes of the files of one commit by their paths."""
        sizes = {}
        for entry in _entries(f"{self._directory}/{commit}"):
            if not _PART.fullmatch(entry.name):
                raise foreign(self._table, f"{commit}/{entry.name} was not published by statelib")
            with suppress(FileNotFoundError):  # another publisher may have removed an old commit
                if entry.is_file():
                    sizes[f"{commit}/{entry.name}"] = entry.stat().st_size
        return sizes


class _StagedDirectory:
    """A :class:`~statelib.publication.parquet.place.PreparedCommit` in a directory that is renamed."""

    def __init__(self, table: PublishedTable, number: int, root: str, directory: str) -> None:
        self.directory = directory
        self._table = table
        self._number = number
        self._root = root

    def prefix(self, key_groups: KeyGroupRange, _fingerprint: str) -> str:
        return range_prefix(key_groups)

    def complete(self, name: str) -> None:
        """Do nothing: the file is where it belongs."""

    def path(self, name: str) -> str:
        return f"{commit_name(self._number)}/{name}"

    def publish(self, manifest: bytes) -> None:
        final = f"{self._root}/{commit_name(self._number)}"
        with storage_errors(f"publishing {final}"):
            with open(f"{self.directory}/{MANIFEST_NAME}", "xb") as file:
                file.write(manifest)
                file.flush()
                os.fsync(file.fileno())
            _sync(self.directory)
            crash_point("publication: durable")
            try:
                os.rename(self.directory, final)
            except OSError as error:
                if os.path.isdir(final):
                    raise taken(self._table, self._number) from error
                raise
            crash_point("publication: renamed")
            _sync(self._root)
        crash_point("publication: committed")


def _entries(directory: str) -> list[os.DirEntry[str]]:
    """Return the entries of a directory that readers of Parquet do not ignore, none if there is no such directory."""
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if not entry.name.startswith(("_", "."))]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _names(directory: str) -> list[str]:
    """Return the names in a directory, none if it is gone: another publisher may have removed an old commit."""
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
