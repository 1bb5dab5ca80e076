"""Every checkpoint storage keeps the contract of the ports."""

from pathlib import Path

import pytest

from statelib.model.ids import PipelineName
from statelib.storage.filesystem import FileSystemCheckpointStorage
from statelib.storage.inventory import list_files
from statelib.storage.memory import MemoryCheckpointStorage, MemoryReader
from statelib.storage.reader import DirectoryReader
from statelib.storage.retries import Retries, wait_never
from statelib.storage.s3 import LOCATION_NAME, S3CheckpointStorage
from statelib.storage.s3_inventory import s3_list_files
from statelib.storage.s3_reader import S3Reader
from statelib.storage.views import CheckpointedStateScope, StorageReference
from statelib.testing.storage_suite import StorageSuite

RETRIES = Retries((0, 0, 0), wait_never)


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


class TestS3(StorageSuite):
    """Over HTTP, against an endpoint in another process."""

    @pytest.fixture(autouse=True)
    def in_a_new_bucket(self, bucket: str) -> None:
        self.bucket = bucket

    def make_storage(self, directory: Path) -> S3CheckpointStorage:
        return S3CheckpointStorage(f"s3://{self.bucket}/a/root/", PipelineName("flights"), RETRIES, 100, str(directory))

    def make_reader(self, reference: StorageReference) -> S3Reader:
        return S3Reader(reference.directory, RETRIES, None, reference.directory.rpartition("/")[0])

    def stored_names(self, reference: StorageReference) -> set[str]:
        return {file.path for file in s3_list_files(reference.directory, RETRIES)} - {LOCATION_NAME}


class TestS3WithoutInlining(TestS3):
    def make_storage(self, directory: Path) -> S3CheckpointStorage:
        return S3CheckpointStorage(f"s3://{self.bucket}", PipelineName("flights"), RETRIES, 0)
