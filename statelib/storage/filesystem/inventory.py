"""Listing and verifying the files in a checkpoint's directory. Functions here only read."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from statelib.errors import CorruptStateError, NotFoundError
from statelib.model.checkpoint import FileRecord
from statelib.model.key_groups import KeyGroupRange
from statelib.storage.filesystem.descriptors import opened_directory, opened_file
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.filesystem.reader import DirectoryReader, blocks
from statelib.storage.uris import AllowedRoot, file_handle, local_path
from statelib.wire.checksum import ContentHash

Problem = Literal["", "missing", "size", "checksum"]


@dataclass(frozen=True)
class FileFinding:
    """The result of verifying one expected file.

    ``problem`` is '' if none was found. Sizes are in bytes. ``actual_size`` is None if there is no regular file with
    the path (a link is none). ``actual_crc`` and ``actual_xxh3`` are None then too, and if the data was not read;
    ``actual_xxh3`` also if none was expected."""

    path: str
    key_group_range: KeyGroupRange
    expected_size: int
    actual_size: int | None
    expected_crc: int
    actual_crc: int | None
    problem: Problem
    expected_xxh3: int | None = None
    actual_xxh3: int | None = None


@dataclass(frozen=True)
class StoredFile:
    """One file in a listing of a directory. ``path`` is relative to the directory. ``modified_at_ms`` is the time of
    the last change by the storage's clock, in epoch milliseconds. ``regular`` is False for links and special files."""

    path: str
    size_bytes: int
    modified_at_ms: int
    regular: bool


def verify_files(
    directory: str, files: Sequence[FileRecord], read_data: bool, allowed_root: AllowedRoot = None
) -> list[FileFinding]:
    """Return one finding per record, in the same order. Sizes are always compared; with ``read_data``, files of the
    right size are read and their checksums compared.

    Raises InvalidRequestError (``outside-root``), before anything is read, for an absolute path that lies neither
    below ``directory`` nor below ``allowed_root``."""
    reader = DirectoryReader(directory, allowed_root=allowed_root)
    places = [reader.locate(file_handle(record.path, record.size_bytes)) for record in files]
    return [_verify(record, *place, read_data) for record, place in zip(files, places, strict=True)]


def _verify(record: FileRecord, root: str, parts: tuple[str, ...], read_data: bool) -> FileFinding:
    try:
        with (
            storage_errors(f"verifying {record.path}"),
            opened_directory(root, parts[:-1]) as parent,
            opened_file(parent, parts[-1]) as file,
        ):
            size = os.fstat(file).st_size
            if size != record.size_bytes:
                return finding(record, "size", size)
            if not read_data:
                return finding(record, "", size)
            content = ContentHash()
            for block in blocks(file):
                content.update(block)
            return read_finding(record, size, content)
    except (NotFoundError, CorruptStateError):
        return finding(record, "missing")


def finding(record: FileRecord, problem: Problem, size: int | None = None) -> FileFinding:
    """Return the finding of a file whose data was not read. ``size`` is its actual size, None if it is missing."""
    expected = (record.path, record.key_group_range, record.size_bytes, size, record.crc32c)
    return FileFinding(*expected, None, problem, record.xxh3)


def read_finding(record: FileRecord, size: int, content: ContentHash) -> FileFinding:
    """Return the finding of a file that has its recorded size and was read. ``content`` holds the checksums of the
    bytes that were read."""
    same = content.crc32c == record.crc32c and record.xxh3 in (None, content.xxh3)
    unread = finding(record, "" if same else "checksum", size)
    return replace(unread, actual_crc=content.crc32c, actual_xxh3=None if record.xxh3 is None else content.xxh3)


def list_files(directory: str) -> list[StoredFile]:
    """Return all files below a directory and its subdirectories, sorted by path. Links are listed, not followed.

    Raises NotFoundError (``missing-file``) if there is no such directory."""
    root = local_path(directory)
    with storage_errors(f"listing {root}"), opened_directory(root) as descriptor:
        return sorted(_listed(descriptor, ""), key=lambda file: file.path)


def _listed(directory: int, prefix: str) -> Iterator[StoredFile]:
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            continue  # it was removed after the directory was read
        if stat.S_ISDIR(status.st_mode):
            yield from _listed_below(directory, name, prefix)
        else:
            modified_at_ms = status.st_mtime_ns // 1_000_000
            yield StoredFile(prefix + name, status.st_size, modified_at_ms, stat.S_ISREG(status.st_mode))


def _listed_below(parent: int, name: str, prefix: str) -> Iterator[StoredFile]:
    try:
        child = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except FileNotFoundError:
        return  # it was removed after the directory was read; the rest of the listing is still valid
    try:
        yield from _listed(child, f"{prefix}{name}/")
    finally:
        os.close(child)
