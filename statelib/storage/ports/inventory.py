"""Results of looking at stored files: findings of a verification, and entries of a listing."""

from dataclasses import dataclass, replace
from typing import Literal

from statelib.model.checkpoint import FileRecord
from statelib.model.key_groups import KeyGroupRange
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


@dataclass(frozen=True)
class SourceEntry:
    """One file or directory below the path of a source. ``below``: the names that lead from the path to the entry, none
    for the path itself. ``modified_at_ms``: the modification time of a file, None for a directory."""

    below: tuple[str, ...]
    modified_at_ms: int | None


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
