"""Every kind of storage keeps the contract of its port."""

from pathlib import Path

import pytest

from statelib.storage.filesystem.kind import FileSystemKind
from statelib.storage.objects.kind import ObjectKind
from statelib.storage.ports.kind import StorageKind
from statelib.storage.retries import Retries, wait_never
from statelib.testing.suites.storage_kind import StorageKindSuite


class TestFileSystemKind(StorageKindSuite):
    def make_kind(self) -> StorageKind:
        return FileSystemKind()

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/state"

    def test_a_link_to_a_snapshot_is_the_same_snapshot(self, kind: StorageKind, tmp_path: Path) -> None:
        (tmp_path / "chk-1").mkdir()
        (tmp_path / "chk-1" / "_metadata").touch()
        (tmp_path / "link").symlink_to("chk-1")
        assert kind.same_snapshot(f"file://{tmp_path}/chk-1", f"file://{tmp_path}/link") is True
        assert kind.same_snapshot(f"file://{tmp_path}/chk-1", f"file://{tmp_path}/absent") is None


class ObjectKindSuite(StorageKindSuite):
    def make_kind(self) -> StorageKind:
        return ObjectKind(lambda: Retries((0, 0, 0), wait_never))


class TestS3Kind(ObjectKindSuite):
    uploads_stay_unfinished = True

    @pytest.fixture
    def root(self, bucket: str) -> str:
        return f"s3://{bucket}/state"

    def test_two_buckets_may_have_the_same_content(self, kind: StorageKind) -> None:
        assert kind.same_snapshot("s3://one/a", "s3://two/a") is None


class TestGoogleKind(ObjectKindSuite):
    uploads_stay_unfinished = True

    @pytest.fixture
    def root(self, google_bucket: str) -> str:
        return f"gs://{google_bucket}/state"


class TestAzureKind(ObjectKindSuite):
    @pytest.fixture
    def root(self, container: str) -> str:
        return f"az://{container}/state"
