"""Tests of S3 storage beyond the contract of every storage: shared files, several buckets, listing, memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError, NotFoundError, RetryableError
from statelib.model.checkpoint import FileRecord
from statelib.model.handles import FileStateHandle, RelativeFileStateHandle
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.storage.names import LOCATION_NAME
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.inventory import list_objects, verify_objects
from statelib.storage.objects.storage import ObjectCheckpointStorage
from statelib.storage.ports.views import CheckpointedStateScope
from statelib.storage.registry import PLACES
from statelib.storage.retries import IMPATIENT, Retries, wait_never
from statelib.testing.suites.storage_case import content
from statelib.wire.checksum import crc32c
from tests.support.fault_proxy import Fault
from tests.support.s3_endpoint import S3Endpoint

FLIGHTS = PipelineName("flights")
ATTEMPT = AttemptId("a" * 32)
ID = CheckpointId(7)


@pytest.fixture
def storage(bucket: str) -> ObjectCheckpointStorage:
    return ObjectCheckpointStorage(f"s3://{bucket}/root", FLIGHTS, IMPATIENT, 100)


def test_shared_files_are_written_outside_of_their_checkpoint(storage: ObjectCheckpointStorage) -> None:
    reference = storage.initialize_location(ID)
    streams = storage.resolve_checkpoint_storage_location(ID, reference, ATTEMPT, 3)
    own = streams.create_stream(CheckpointedStateScope.EXCLUSIVE)
    shared = streams.create_stream(CheckpointedStateScope.SHARED)
    for stream in (own, shared):
        stream.write(content(5000))
    assert own.close_and_get_handle().handle == RelativeFileStateHandle(f"{ATTEMPT}-3-0", 5000)
    handle = shared.close_and_get_handle().handle
    assert handle == FileStateHandle(f"{storage.root}/flights/shared/{ATTEMPT}-3-1", 5000)
    later = storage.initialize_location(CheckpointId(8)).directory
    kind, pipeline = PLACES.kind(later), f"{storage.root}/flights"
    assert kind.reader(later, {handle.path: (5000, crc32c(content(5000)))}, pipeline).read(handle) == content(5000)
    record = FileRecord(handle.path, 5000, crc32c(content(5000)), 3, KeyGroupRange(0, 1))
    assert [f.problem for f in kind.verify_files(later, [record], True, pipeline)] == [""]
    streams.discard(handle)
    streams.discard(handle)
    assert [f.problem for f in kind.verify_files(later, [record], True, pipeline)] == ["missing"]
    assert {f.path for f in list_objects(reference.directory, IMPATIENT)} == {LOCATION_NAME, f"{ATTEMPT}-3-0"}


def test_a_savepoint_can_be_written_to_another_bucket(
    s3: S3Endpoint, storage: ObjectCheckpointStorage, bucket: str
) -> None:
    s3.make_bucket(f"{bucket}-mine")
    reference = storage.initialize_savepoint_location(ID, f"s3://{bucket}-mine")
    assert reference.directory == f"s3://{bucket}-mine/savepoint-flights-7"
    streams = storage.resolve_checkpoint_storage_location(ID, reference, ATTEMPT, 0)
    handles = []
    for scope in CheckpointedStateScope:
        stream = streams.create_stream(scope)
        stream.write(content(500))
        handles.append(stream.close_and_get_handle().handle)
    names = {file.path for file in list_objects(f"s3://{bucket}-mine", IMPATIENT)}
    assert f"savepoint-flights-7/{ATTEMPT}-0-1" in names
    assert f"root/flights/shared/{ATTEMPT}-0-0" in {f.path for f in list_objects(f"s3://{bucket}", IMPATIENT)}
    for handle in handles:
        streams.discard(handle)
    assert {f.path for f in list_objects(reference.directory, IMPATIENT)} == {LOCATION_NAME}


def test_the_time_for_a_copy_depends_on_its_size(s3: S3Endpoint, bucket: str) -> None:
    """Storages copy some 100 MB/s and answer at the end: an object of 5 GB may take more than the usual minute."""
    objects = Bucket(f"s3://{bucket}", Retries((), wait_never, request_timeout_s=0.25))
    s3.put_object(bucket, "original", b"state")
    slow = Fault("slow", "PUT", "copy")
    s3.break_next(slow)
    with pytest.raises(RetryableError, match="no whole answer came"):
        objects.copy("original", "copy-1", 1 << 30)
    s3.break_next(slow)
    objects.copy("original", "copy-2", 40 << 30)
    assert Bucket(f"s3://{bucket}", IMPATIENT).size("copy-2") == 5


@pytest.mark.parametrize(
    "path", [f"{ATTEMPT}-0-0", f"{ATTEMPT}-3-x", f"{ATTEMPT}-3-", "_metadata", f"x/{ATTEMPT}-3-0", f"../{ATTEMPT}-3-0"]
)
def test_only_its_own_files_are_discarded(storage: ObjectCheckpointStorage, path: str) -> None:
    streams = storage.resolve_checkpoint_storage_location(ID, storage.initialize_location(ID), ATTEMPT, 3)
    for handle in (RelativeFileStateHandle(path, 1), FileStateHandle(f"{storage.root}/flights/shared/{path}", 1)):
        with pytest.raises(InvalidRequestError) as caught:
            streams.discard(handle)
        assert caught.value.kind == "foreign-file"


def test_listing_a_directory_excludes_longer_names_with_the_same_beginning(storage: ObjectCheckpointStorage) -> None:
    one, other = storage.initialize_location(CheckpointId(1)), storage.initialize_location(CheckpointId(11))
    storage.publish_metadata(other, b"x")
    assert {file.path for file in list_objects(one.directory, IMPATIENT)} == {LOCATION_NAME}
    listed = {file.path: file for file in list_objects(other.directory, IMPATIENT)}
    assert set(listed) == {LOCATION_NAME, "_metadata"}
    assert (listed["_metadata"].size_bytes, listed["_metadata"].regular) == (1, True)
    assert listed["_metadata"].modified_at_ms > 1_600_000_000_000
    with pytest.raises(NotFoundError):
        list_objects(f"{storage.root}/nothing", IMPATIENT)


def test_findings_name_the_problem(storage: ObjectCheckpointStorage) -> None:
    directory = storage.initialize_location(ID).directory
    streams = storage.resolve_checkpoint_storage_location(ID, storage.initialize_location(ID), ATTEMPT, 0)
    stream = streams.create_stream(CheckpointedStateScope.EXCLUSIVE)
    stream.write(content(500))
    name, crc = f"{ATTEMPT}-0-0", stream.close_and_get_handle().crc32c
    records = [
        FileRecord(path, size, expected, 0, KeyGroupRange(0, 1))
        for path, size, expected in [(name, 500, crc), (name, 501, crc), (name, 500, crc ^ 1), ("gone", 1, 0)]
    ]
    listed = verify_objects(directory, records, True, IMPATIENT)
    assert [f.problem for f in listed] == ["", "size", "checksum", "missing"]
    assert [(f.actual_size, f.actual_crc) for f in listed] == [(500, crc), (500, None), (500, crc), (None, None)]
    assert [f.problem for f in verify_objects(directory, records, False, IMPATIENT)] == ["", "size", "", "missing"]


def test_uploads_and_downloads_use_bounded_memory(storage: ObjectCheckpointStorage, tmp_path: Path) -> None:
    """A process sends 192 MiB and reads them back, and may not grow by half as much."""
    reference = storage.initialize_location(ID)
    program = f"""
import resource
from statelib.storage.retries import IMPATIENT
from statelib.storage.objects.storage import *
from statelib.storage.objects.reader import ObjectReader
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
storage = ObjectCheckpointStorage({storage.root!r}, "flights", IMPATIENT, 0, {str(tmp_path)!r})
reference = StorageReference({reference.directory!r})
stream = storage.resolve_checkpoint_storage_location(7, reference, "b" * 32, 0).create_stream("EXCLUSIVE")
before = peak()
for number in range(192):
    stream.write(bytes([number]) * (1 << 20))
written = stream.close_and_get_handle()
known = {{written.handle.path: (written.size_bytes, written.crc32c)}}
ObjectReader(reference.directory, IMPATIENT, known).copy_to(written.handle, {str(tmp_path / "copy")!r})
print(peak() - before)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) < 96 << 20
    assert (tmp_path / "copy").stat().st_size == 192 << 20
