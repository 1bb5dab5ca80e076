"""Knowing a local file again without reading it."""

import os
from dataclasses import dataclass

from statelib.model.handles import StreamStateHandle

SETTLED_NS = 1_000_000_000
"""How old a change must be so that the next one surely shows in the time of the last: file systems count in ticks."""


@dataclass(frozen=True)
class FileIdentity:
    """What stays the same while nobody makes a file anew or writes into it. Hard links of a file share it."""

    inode: int
    size_bytes: int
    modified_ns: int

    def settled(self, now_ns: int) -> bool:
        """Whether it can be relied on later. ``now_ns``: by the clock that files' times are of."""
        return now_ns - self.modified_ns > SETTLED_NS


def identity_of(path: str) -> FileIdentity:
    """Raises OSError."""
    found = os.stat(path, follow_symlinks=False)
    return FileIdentity(found.st_ino, found.st_size, found.st_mtime_ns)


def same_file(first: str, second: str) -> bool | None:
    """Whether two paths lead to one file; None where that cannot be said: one is not there, or they lie on two devices,
    which may be two mounts of one disk."""
    try:
        one, other = os.stat(first), os.stat(second)
    except OSError:
        return None
    return one.st_ino == other.st_ino if one.st_dev == other.st_dev else None


@dataclass(frozen=True)
class KnownFile:
    """A local file that holds the bytes of a stream."""

    stream: StreamStateHandle
    identity: FileIdentity

    def is_at(self, path: str, stream: StreamStateHandle) -> bool:
        """Whether it is the file at ``path``, unchanged, and the stream's. Raises OSError."""
        return stream == self.stream and identity_of(path) == self.identity
