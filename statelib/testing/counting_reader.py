"""A reader that counts: tests say with it what is read, and that nothing is."""

from collections import Counter
from dataclasses import dataclass, field

from statelib.model.handles import ByteStreamStateHandle, StreamStateHandle
from statelib.savepoints.opened import Checkpoint
from statelib.storage.filesystem.reader import DirectoryReader


@dataclass(frozen=True)
class CountingReader(DirectoryReader):
    """A DirectoryReader; ``read_bytes`` counts the bytes asked for, by path or by the name of inline state."""

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
    """A Checkpoint whose readers all count into ``read_bytes``."""

    read_bytes: Counter[str] = field(default_factory=Counter)

    def reader(self) -> CountingReader:
        return CountingReader(
            self.directory, self.checksums(), allowed_root=self.allowed_root, read_bytes=self.read_bytes
        )


def counting(opened: Checkpoint) -> CountingCheckpoint:
    """The same checkpoint, counting what is read of it from now on."""
    return CountingCheckpoint(
        opened.directory,
        opened.metadata,
        opened.manifest,
        opened.metadata_bytes,
        opened.selected,
        opened.allowed_root,
    )
