"""Names and places of S3 storage, decided without any request: there is no endpoint in these tests."""

import pickle

import pytest

from statelib.errors import InvalidRequestError, StatelibError, UnsupportedError
from statelib.model.checkpoint import FileRecord
from statelib.model.handles import FileStateHandle, RelativeFileStateHandle
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.inventory import verify_objects
from statelib.storage.objects.reader import ObjectReader
from statelib.storage.objects.storage import ObjectCheckpointStorage
from statelib.storage.objects.uris import object_location
from statelib.storage.ports.views import StorageReference
from statelib.storage.registry import PLACES
from statelib.storage.retries import IMPATIENT, Retries

FLIGHTS = PipelineName("flights")
CHECKPOINT = "s3://bucket/base/flights/chk-7"
PIPELINE = "s3://bucket/base/flights"


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket/a//b/./c/", "s3://bucket/a/b/c"),
        ("s3://my.bucket-1/%2e%2e/x", "s3://my.bucket-1/%2e%2e/x"),
        ("gs://my_bucket/a/", "gs://my_bucket/a"),
        ("AZ://container/a//b", "az://container/a/b"),
        ("abfss://box@account1.dfs.core.windows.net/a", "abfss://box@account1.dfs.core.windows.net/a"),
    ],
)
def test_equal_locations_have_equal_uris(text: str, uri: str) -> None:
    assert object_location(text).uri == PLACES.kind(text).normalised(text) == uri


@pytest.mark.parametrize(
    "text",
    [
        "s3:/bucket/x",
        "s3://",
        "s3:///x",
        "s3://KEY:hunter2@bucket/x",
        "s3://bucket:9000/hunter2",
        "s3://Bucket/x",
        "s3://bucket/../x",
        "s3://bucket/a/../../x",
        "s3://bucket/x?X-Amz-Signature=hunter2",
        "s3://bucket/x#hunter2",
        "s3://bucket/a\0b",
        "s3://bucket/a\nb",
        "s3://bucket/" + "x" * 1025,
        "s3a://bucket/x",
        "az://hunter2@account/x",
        "az://under_score/x",
        "az://double--dash/x",
        "abfss://container/x",
        "abfss://box@account.hunter2.example/x",
        "abfss://box:hunter2@account1.dfs.core.windows.net/x",
        "gs://Bucket/x",
        "/bucket/x",
    ],
)
def test_invalid_locations_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        object_location(text)
    assert caught.value.kind in ("bad-path", "outside-root")
    assert "hunter2" not in str(caught.value)


def test_an_unknown_scheme_is_refused_without_showing_the_rest_of_the_uri() -> None:
    with pytest.raises(UnsupportedError, match="ftp") as caught:
        PLACES.kind("ftp://key:hunter2@bucket")
    assert caught.value.kind == "unknown-scheme"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("hdfs://name/x", "overwrites files"), ("s3a://bucket/x", "write s3://"), ("abfs://c@a/x", "write abfss://")],
)
def test_the_error_for_a_common_but_unsupported_scheme_has_a_hint(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        PLACES.kind(text)
    assert caught.value.kind == "unknown-scheme"
    assert message in f"{caught.value} {caught.value.hint}"


def test_locations_in_different_accounts_are_different() -> None:
    one, other = (object_location(f"abfss://box@{name}.dfs.core.windows.net/a") for name in ("one", "other"))
    assert one.holds(one.below("b"))
    assert not one.holds(other.below("b"))
    assert not object_location("s3://bucket/a").holds(object_location("gs://bucket/a/b"))


FOREIGN = [
    "gs://bucket/base/flights/chk-7/x",
    "s3://other/base/flights/chk-7/x",
    "s3://bucket/base/flights",
    "s3://bucket/base/flights-2/x",
    "s3://bucket/base/x",
    "s3://bucket/base/flights/chk-7/../../../x",
    "file:///etc/passwd",
    "/etc/passwd",
    "http://169.254.169.254/x",
    "mock:x",
    "",
]


@pytest.mark.parametrize("path", FOREIGN)
def test_a_reader_refuses_paths_outside_its_pipeline(path: str) -> None:
    reader = PLACES.kind(CHECKPOINT).reader(CHECKPOINT, None, PIPELINE)
    with pytest.raises(InvalidRequestError) as caught:
        reader.read(FileStateHandle(path, 1))
    assert caught.value.kind in ("outside-root", "bad-path")


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "", "a//b", "./x", "s3://../x", "x\0"])
def test_relative_paths_cannot_leave_their_checkpoint(path: str) -> None:
    reader = ObjectReader(CHECKPOINT, IMPATIENT)
    with pytest.raises(InvalidRequestError) as caught:
        reader.read(RelativeFileStateHandle(path, 1))
    assert caught.value.kind in ("outside-root", "bad-path")


@pytest.mark.parametrize("path", ["s3://other/x", "/etc/passwd", "../x"])
def test_foreign_records_are_refused_before_any_request(path: str) -> None:
    record = FileRecord(path, 1, 0, 0, KeyGroupRange(0, 1))
    with pytest.raises(InvalidRequestError):
        verify_objects(CHECKPOINT, [record], True, IMPATIENT)


def test_shared_files_can_be_read_only_if_the_pipeline_directory_is_allowed() -> None:
    shared = FileStateHandle(f"{PIPELINE}/shared/x", 1)
    reader = PLACES.kind(CHECKPOINT).reader(CHECKPOINT, None, PIPELINE)
    assert isinstance(reader, ObjectReader)
    assert reader.locate(shared).key == "base/flights/shared/x"
    with pytest.raises(InvalidRequestError):
        PLACES.kind(CHECKPOINT).reader(CHECKPOINT, None, None).locate(shared)


def test_the_uri_of_a_file_is_below_its_checkpoint_or_absolute() -> None:
    assert PLACES.file_uri(CHECKPOINT + "/", "a/b") == f"{CHECKPOINT}/a/b"
    assert PLACES.file_uri(CHECKPOINT, "s3://bucket/shared/x") == "s3://bucket/shared/x"
    assert PLACES.file_uri("/r/chk-1", "x") == "file:///r/chk-1/x"
    assert PLACES.file_uri("/r/chk-1", "file:/s/x") == "file:///s/x"
    with pytest.raises(InvalidRequestError):
        PLACES.file_uri(CHECKPOINT, "../x")


def test_storages_with_equal_settings_are_equal_and_can_be_pickled() -> None:
    storage = ObjectCheckpointStorage("s3://bucket/base/", FLIGHTS, Retries((1.0,), print))
    assert storage == ObjectCheckpointStorage("s3://bucket/./base", FLIGHTS, IMPATIENT)
    assert pickle.loads(pickle.dumps(storage)) == storage
    objects = pickle.loads(pickle.dumps(Bucket("s3://bucket", Retries((1.0,), print))))
    assert (objects.uri, objects.retries.delays_s) == ("s3://bucket", (1.0,))


@pytest.mark.parametrize("attempt", ["", "a" * 31, "A" * 32, "../" + "a" * 29])
def test_invalid_attempt_ids_are_refused(attempt: str) -> None:
    storage = ObjectCheckpointStorage("s3://bucket", FLIGHTS, IMPATIENT)
    with pytest.raises(InvalidRequestError) as caught:
        storage.resolve_checkpoint_storage_location(
            CheckpointId(7), StorageReference(CHECKPOINT), AttemptId(attempt), 0
        )
    assert caught.value.kind == "bad-attempt"


@pytest.mark.parametrize("number", [-1, True, "1", "../1"])
def test_invalid_checkpoint_ids_are_refused(number: CheckpointId) -> None:
    storage = ObjectCheckpointStorage("s3://bucket", FLIGHTS, IMPATIENT)
    with pytest.raises(StatelibError) as caught:
        storage.initialize_location(number)
    assert caught.value.kind == "bad-id"
