"""Recognising an unchanged local file without reading it."""

import os
from dataclasses import dataclass

from statelib.model.handles import StreamStateHandle

SETTLED_NS = 1_000_000_000
"""The least age, in nanoseconds, of the last change of a file, after which a further change surely gives it another
modification time. File systems count time in coarse ticks."""


@dataclass(frozen=True)
class FileIdentity:
    """The properties of a file that stay the same while the file is neither replaced nor written to. Hard links of a
    file share them."""

    inode: int
    size_bytes: int
    modified_ns: int

    def settled(self, now_ns: int) -> bool:
        """Return whether a later change of the file surely gives it another identity. ``now_ns`` is the time by the
        file system's own clock."""
        return now_ns - self.modified_ns > SETTLED_NS


def identity_of(path: str) -> FileIdentity:
    """Return the identity of the file at ``path``; a link is not followed. Raises OSError."""
    status = os.stat(path, follow_symlinks=False)
    return FileIdentity(status.st_ino, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True)
class KnownFile:
    """A local file that holds the bytes of a stream, and its identity at the time when they were verified."""

    stream: StreamStateHandle
    identity: FileIdentity

    def is_at(self, path: str, stream: StreamStateHandle) -> bool:
        """Return whether the file at ``path`` is this file, unchanged, and holds the bytes of ``stream``. Raises
        OSError."""
        return stream == self.stream and identity_of(path) == self.identity
