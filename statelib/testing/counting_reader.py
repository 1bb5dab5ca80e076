"""A reader that counts bytes, for tests of how much is read from storage."""

from collections import Counter
from dataclasses import dataclass, field

from statelib.model.handles import ByteStreamStateHandle, StreamStateHandle
from statelib.savepoints.opened import Checkpoint
from statelib.storage.filesystem.reader import DirectoryReader


@dataclass(frozen=True)
class CountingReader(DirectoryReader):
    """A DirectoryReader that counts the requested bytes in ``read_bytes``, by path or by the name of inline state."""

    read_bytes: Counter[str] = field(default_factory=Counter)

    def read(self, handle: StreamStateHandle) -> memoryview:
        self._count(handle, handle.size_bytes)
        return super().read(handle)

    def read_range(self, handle: StreamStateHandle, start: int, stop: int) -> memoryview:
        self._count(handle, stop - start)
        return super().read_range(handle, start, stop)

    def copy_to(self, handle: StreamStateHandle, local_path: str) -> None:
        self._count(handle, handle.size_bytes)
        super().copy_to(handle, local_path)

    def _count(self, handle: StreamStateHandle, size_bytes: int) -> None:
        self.read_bytes[handle.name if isinstance(handle, ByteStreamStateHandle) else handle.path] += size_bytes


@dataclass(frozen=True)
class CountingCheckpoint(Checkpoint):
    """A Checkpoint whose readers all add to the same ``read_bytes``."""

    read_bytes: Counter[str] = field(default_factory=Counter)

    def reader(self) -> CountingReader:
        return CountingReader(
            self.directory, self.checksums(), allowed_root=self.allowed_root, read_bytes=self.read_bytes
        )


def counting(opened: Checkpoint) -> CountingCheckpoint:
    """Return a copy of the opened checkpoint that counts the bytes read from it, starting at 0."""
    return CountingCheckpoint(
        opened.directory,
        opened.metadata,
        opened.manifest,
        opened.metadata_bytes,
        opened.selected,
        opened.allowed_root,
    )
