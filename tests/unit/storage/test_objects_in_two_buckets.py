"""The files of a snapshot that was moved may lie in another bucket than its ``_metadata``."""

import pytest

from statelib.model.checkpoint import FileRecord
from statelib.model.handles import FileStateHandle, RelativeFileStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.inventory import verify_objects
from statelib.storage.objects.reader import ObjectReader
from statelib.storage.retries import IMPATIENT

OBJECTS = {"s3://one/chk-1/own": b"own", "s3://two/shared/moved": b"moved"}


@pytest.fixture(autouse=True)
def stored_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two buckets have the objects. No request is made."""

    def read_range(bucket: Bucket, key: str, start: int, stop: int) -> tuple[bytes, int]:
        data = OBJECTS[f"{bucket.uri}/{key}"]
        return data[start:stop], len(data)

    monkeypatch.setattr(Bucket, "size", lambda bucket, key: len(OBJECTS[f"{bucket.uri}/{key}"]))
    monkeypatch.setattr(Bucket, "read_range", read_range)


def test_each_object_is_read_in_its_own_bucket() -> None:
    reader = ObjectReader("s3://one/chk-1", IMPATIENT, allowed_root="s3://two/shared")
    assert bytes(reader.read_range(RelativeFileStateHandle("own", 3), 0, 3)) == b"own"
    assert bytes(reader.read_range(FileStateHandle("s3://two/shared/moved", 5), 0, 5)) == b"moved"


def test_each_object_is_verified_in_its_own_bucket() -> None:
    paths = {"own": 3, "s3://two/shared/moved": 5}
    records = [FileRecord(path, size, 0, 0, KeyGroupRange(0, 1)) for path, size in paths.items()]
    findings = verify_objects("s3://one/chk-1", records, False, IMPATIENT, "s3://two/shared")
    assert [finding.problem for finding in findings] == ["", ""]
