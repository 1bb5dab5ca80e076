"""Every checkpoint storage keeps the contract of the ports."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from statelib.model.ids import PipelineName
from statelib.storage.filesystem.inventory import list_files
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from statelib.storage.names import LOCATION_NAME
from statelib.storage.objects.inventory import list_objects
from statelib.storage.objects.reader import ObjectReader
from statelib.storage.objects.removal import ObjectRemover
from statelib.storage.objects.storage import ObjectCheckpointStorage
from statelib.storage.ports.views import (
    CheckpointedStateScope,
    CheckpointStorageWorkerView,
    FileMergingSettings,
    StorageReference,
)
from statelib.storage.retries import Retries, wait_never
from statelib.testing.memory_storage import MemoryCheckpointStorage, MemoryReader
from statelib.testing.suites.storage import StorageSuite
from statelib.testing.suites.storage_case import Storage

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


class Merging:
    """A storage with file merging, as its workers see it, over any other storage."""

    settings = FileMergingSettings()

    def worker(self, storage: Storage) -> CheckpointStorageWorkerView:
        return storage.to_file_merging_storage(self.settings)


class TestFileSystemMerging(Merging, TestFileSystem):
    pass


class TestFileSystemMergingShared(Merging, TestFileSystemShared):
    pass


class TestFileSystemMergingWithoutInlining(Merging, TestFileSystemWithoutInlining):
    """Large streams have files of their own, and no physical file holds much."""

    settings = FileMergingSettings(10_000)


class TestMemory(StorageSuite):
    def make_storage(self, directory: Path) -> MemoryCheckpointStorage:
        return MemoryCheckpointStorage(PipelineName("flights"))

    def make_reader(self, reference: StorageReference) -> MemoryReader:
        return MemoryReader()

    def stored_names(self, reference: StorageReference) -> set[str]:
        return set()


class TestMemoryMerging(Merging, TestMemory):
    pass


class TestMemoryShared(TestMemory):
    scope = CheckpointedStateScope.SHARED


class ObjectStorageSuite(StorageSuite):
    """The suite over HTTP, with an endpoint in another process."""

    root: str

    def make_storage(self, directory: Path) -> ObjectCheckpointStorage:
        return ObjectCheckpointStorage(f"{self.root}/a/root/", PipelineName("flights"), RETRIES, 100, str(directory))

    def make_reader(self, reference: StorageReference) -> ObjectReader:
        return ObjectReader(reference.directory, RETRIES, None, reference.directory.rpartition("/")[0])

    def stored_names(self, reference: StorageReference) -> set[str]:
        return {file.path for file in list_objects(reference.directory, RETRIES)} - {LOCATION_NAME}


class TestS3(ObjectStorageSuite):
    @pytest.fixture(autouse=True)
    def in_a_new_bucket(self, bucket: str) -> None:
        self.root = f"s3://{bucket}"


class TestS3WithoutInlining(TestS3):
    def make_storage(self, directory: Path) -> ObjectCheckpointStorage:
        return ObjectCheckpointStorage(self.root, PipelineName("flights"), RETRIES, 0)


class TestS3Merging(Merging, TestS3):
    pass


class TestS3MergingShared(Merging, TestS3WithoutInlining):
    scope = CheckpointedStateScope.SHARED
    settings = FileMergingSettings(10_000)


class TestAzure(ObjectStorageSuite):
    @pytest.fixture(autouse=True)
    def in_a_new_container(self, container: str) -> None:
        self.root = f"az://{container}"


class TestAzureMerging(Merging, TestAzure):
    pass


class TestGoogleCloudStorage(ObjectStorageSuite):
    """The suite with the client of Google Cloud Storage. Behind it is an endpoint of S3 with Google's headers."""

    @pytest.fixture(autouse=True)
    def in_a_new_bucket(self, google_bucket: str) -> None:
        self.root = f"gs://{google_bucket}"


class TestGoogleCloudStorageMerging(Merging, TestGoogleCloudStorage):
    pass


class TestRealGoogleCloudStorage(ObjectStorageSuite):
    """The suite with a real bucket."""

    @pytest.fixture(autouse=True)
    def in_a_new_prefix(self) -> Iterator[None]:
        bucket = os.environ.get("STATELIB_TEST_GCS")
        if not bucket:
            pytest.skip("no bucket: set STATELIB_TEST_GCS=gs://bucket/prefix and credentials")
        self.root = f"{bucket}/{uuid.uuid4()}"
        yield
        remover = ObjectRemover(RETRIES)
        left = [f"{self.root}/{file.path}" for file in list_objects(self.root, RETRIES)]
        remover.remove_files(left, [self.root])
