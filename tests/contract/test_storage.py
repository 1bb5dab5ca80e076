"""Every checkpoint storage keeps the contract of the ports."""

from pathlib import Path

from statelib.model.ids import PipelineName
from statelib.storage.filesystem import FileSystemCheckpointStorage
from statelib.storage.inventory import list_files
from statelib.storage.memory import MemoryCheckpointStorage, MemoryReader
from statelib.storage.reader import DirectoryReader
from statelib.storage.views import CheckpointedStateScope, StorageReference
from statelib.testing.storage_suite import StorageSuite


class TestFileSystem(StorageSuite):
    def make_storage(self, directory: Path) -> FileSystemCheckpointStorage:
        return FileSystemCheckpointStorage(str(directory / "new" / "root"), PipelineName("flights"), 100)

    def make_reader(self, reference: StorageReference) -> DirectoryReader:
        return DirectoryReader(reference.directory, allowed_root=reference.directory.rpartition("/")[0])

    def stored_names(self, reference: StorageReference) -> set[str]:
        return {file.path for file in list_files(reference.directory.rpartition("/")[0])}


class TestFileSystemShared(TestFileSystem):
    scope = CheckpointedStateScope.SHARED


class TestFileSystemWithoutInlining(TestFileSystem):
    def make_storage(self, directory: Path) -> FileSystemCheckpointStorage:
        return FileSystemCheckpointStorage(f"file:{directory}", PipelineName("flights"), 0)


class TestMemory(StorageSuite):
    def make_storage(self, directory: Path) -> MemoryCheckpointStorage:
        return MemoryCheckpointStorage(PipelineName("flights"))

    def make_reader(self, reference: StorageReference) -> MemoryReader:
        return MemoryReader()

    def stored_names(self, reference: StorageReference) -> set[str]:
        return set()


class TestMemoryShared(TestMemory):
    scope = CheckpointedStateScope.SHARED
