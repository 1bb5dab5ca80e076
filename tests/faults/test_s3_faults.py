"""Checkpoint storage on S3 when the network and the storage misbehave: nothing is lost, and incomplete data are
never used."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from statelib.errors import (
    ConflictError,
    CorruptStateError,
    NotFoundError,
    RetryableError,
    StatelibError,
    UnsupportedError,
)
from statelib.model.handles import RelativeFileStateHandle
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.storage.names import LOCATION_NAME
from statelib.storage.objects.bucket import PART_BYTES, Bucket
from statelib.storage.objects.inventory import list_objects
from statelib.storage.objects.reader import ObjectReader
from statelib.storage.objects.storage import ObjectCheckpointStorage, ObjectStreamFactory
from statelib.storage.ports.views import (
    DEFAULT_REFERENCE,
    CheckpointedStateScope,
    FileMergingSettings,
    StorageReference,
)
from statelib.storage.retries import IMPATIENT, Retries
from statelib.testing.suites.storage_case import content
from statelib.wire.checksum import crc32c
from tests.support.fault_proxy import Fault, Kind
from tests.support.s3_endpoint import CANARY, S3Endpoint

ID = CheckpointId(7)
ATTEMPT = AttemptId("a" * 32)


class Begun:
    """A location in a new bucket. ``waited``: the pauses between retries."""

    def __init__(self, bucket: str, delays: tuple[float, ...] = (1, 2, 3)) -> None:
        self.waited: list[float] = []
        self.retries = Retries(delays, self.waited.append)
        self.storage = ObjectCheckpointStorage(f"s3://{bucket}/root", PipelineName("flights"), self.retries, 0)
        self.reference: StorageReference = self.storage.initialize_location(ID)

    def streams(self) -> ObjectStreamFactory:
        return self.storage.resolve_checkpoint_storage_location(ID, self.reference, ATTEMPT, 0)

    def write(self, data: bytes) -> RelativeFileStateHandle:
        stream = self.streams().create_stream(CheckpointedStateScope.EXCLUSIVE)
        stream.write(data)
        handle = stream.close_and_get_handle().handle
        assert isinstance(handle, RelativeFileStateHandle)
        return handle

    def names(self) -> set[str]:
        return {file.path for file in list_objects(self.reference.directory, self.retries)} - {LOCATION_NAME}

    def reader(self, handle: RelativeFileStateHandle, data: bytes) -> ObjectReader:
        return ObjectReader(self.reference.directory, self.retries, {handle.path: (len(data), crc32c(data))})


@pytest.fixture
def begun(bucket: str) -> Begun:
    return Begun(bucket)


PUBLISHING = [
    pytest.param([Fault("lost", "PUT", "_metadata")], 0, id="reply-lost"),
    pytest.param([Fault("lost", "PUT", "_metadata"), Fault("lost", "GET", "_metadata", 2)], 2, id="and-reading-back"),
    pytest.param([Fault("reset", "PUT", "_metadata", 2)], 2, id="reset-before"),
    pytest.param([Fault("status", "PUT", "_metadata", 2)], 2, id="503"),
    pytest.param([Fault("status", "PUT", "_metadata", 3, status=500)], 3, id="500"),
    pytest.param([Fault("status", "PUT", "_metadata", 2, status=409)], 2, id="409"),
    pytest.param([Fault("slow", "PUT", "_metadata")], 0, id="slow"),
]


@pytest.mark.parametrize(("faults", "pauses"), PUBLISHING)
def test_publishing_succeeds_despite_these_faults(
    s3: S3Endpoint, begun: Begun, faults: list[Fault], pauses: int
) -> None:
    s3.break_next(*faults)
    assert begun.storage.publish_metadata(begun.reference, b"mine") == b"mine"
    assert begun.waited == [1, 2, 3][:pauses]
    assert begun.storage.publish_metadata(begun.reference, b"other") == b"mine"
    assert begun.storage.read_metadata(begun.reference) == b"mine"


def test_a_lost_reply_does_not_hide_another_winner(s3: S3Endpoint, begun: Begun) -> None:
    begun.storage.publish_metadata(begun.reference, b"theirs")
    s3.break_next(Fault("lost", "PUT", "_metadata"))
    assert begun.storage.publish_metadata(begun.reference, b"mine") == b"theirs"


def test_an_unknown_outcome_is_an_error_that_deletes_nothing(s3: S3Endpoint, begun: Begun) -> None:
    s3.break_next(Fault("lost", "PUT", "_metadata", 9), Fault("status", "GET", "_metadata", 9))
    with pytest.raises(RetryableError):
        begun.storage.publish_metadata(begun.reference, b"mine")
    s3.break_next()
    assert begun.storage.read_metadata(begun.reference) == b"mine"
    assert begun.storage.publish_metadata(begun.reference, b"mine") == b"mine"


def test_concurrent_publishers_return_the_same_bytes(begun: Begun) -> None:
    for number in range(20):
        reference = begun.storage.initialize_location(CheckpointId(100 + number))
        offers = [b"offer %d" % n for n in range(6)]
        with ThreadPoolExecutor(len(offers)) as pool:
            results = set(pool.map(lambda offer: begun.storage.publish_metadata(reference, offer), offers))  # noqa: B023
        assert len(results) == 1
        assert results <= set(offers)


def test_concurrent_processes_return_the_same_bytes(s3: S3Endpoint, begun: Begun, bucket: str) -> None:
    program = (
        "import sys; from statelib.storage.retries import IMPATIENT; from statelib.storage.objects.storage import *;"
        f"s = ObjectCheckpointStorage('s3://{bucket}/root', 'flights', IMPATIENT);"
        f"r = StorageReference('{begun.reference.directory}'); sys.stdin.read(1);"
        "print(s.publish_metadata(r, sys.argv[1].encode()).decode())"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", program, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "two")
    ]
    results = [racer.communicate("x", timeout=60)[0].strip() for racer in racers]
    assert results in (["one", "one"], ["two", "two"])


def test_a_storage_that_overwrites_is_refused(s3: S3Endpoint, bucket: str) -> None:
    s3.break_next(Fault("unconditional", "PUT", "", 99))
    with pytest.raises(UnsupportedError, match="If-None-Match") as caught:
        Begun(bucket)
    assert caught.value.kind == "no-put-if-absent"


WRITING = [
    pytest.param([Fault("lost", "PUT", f"{ATTEMPT}-0-0")], id="reply-lost"),
    pytest.param([Fault("reset", "PUT", f"{ATTEMPT}-0-0", 2)], id="reset-before"),
    pytest.param([Fault("status", "PUT", f"{ATTEMPT}-0-0", 3)], id="503"),
    pytest.param([Fault("lost", "POST", f"{ATTEMPT}-0-0")], id="creation-lost"),
    pytest.param([Fault("lost", "POST", "uploadId=")], id="completion-lost"),
    pytest.param([Fault("error-body", "POST", "uploadId=", 2)], id="completion-200-with-an-error"),
    pytest.param([Fault("status", "PUT", "partNumber=2", 2)], id="second-part-503"),
    pytest.param([Fault("status", "HEAD", f"{ATTEMPT}-0-0", 2)], id="503-on-looking"),
]


@pytest.mark.parametrize("size", [5000, PART_BYTES + 5000])
@pytest.mark.parametrize("faults", WRITING)
def test_data_is_written_despite_these_faults(s3: S3Endpoint, begun: Begun, faults: list[Fault], size: int) -> None:
    data = content(size)
    streams = begun.streams()
    s3.break_next(*faults)
    stream = streams.create_stream(CheckpointedStateScope.EXCLUSIVE)
    stream.write(data)
    handle = stream.close_and_get_handle().handle
    assert isinstance(handle, RelativeFileStateHandle)
    assert begun.names() == {handle.path}
    assert begun.reader(handle, data).read(handle) == data


@pytest.mark.parametrize(
    ("kind", "method", "size"),
    [
        ("status", "PUT", 5000),
        ("status", "PUT", PART_BYTES + 5000),
        ("lost", "PUT", 5000),
        ("lost", "PUT", PART_BYTES + 5000),
        ("lost", "POST", PART_BYTES + 5000),
    ],
)
def test_a_failed_stream_leaves_no_object(s3: S3Endpoint, begun: Begun, kind: Kind, method: str, size: int) -> None:
    stream = begun.streams().create_stream(CheckpointedStateScope.EXCLUSIVE)
    stream.write(content(size))
    s3.break_next(Fault(kind, method, ATTEMPT, 99))
    with pytest.raises(RetryableError) as caught:
        stream.close_and_get_handle()
    assert caught.value.kind == "storage-io"
    assert begun.waited == [1, 2, 3]
    s3.break_next()
    assert begun.names() == set()


def test_closing_from_another_thread_ends_an_upload(s3: S3Endpoint, begun: Begun, bucket: str) -> None:
    stream = begun.streams().create_stream(CheckpointedStateScope.EXCLUSIVE)
    stream.write(bytes(12 * PART_BYTES))
    s3.break_next(Fault("slow", "PUT", "partNumber", 99))
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(stream.close_and_get_handle)
        while not s3.unfinished_uploads(bucket):
            assert not sending.done()
        stream.close()
        with pytest.raises(RetryableError) as caught:
            sending.result()
    assert caught.value.kind == "cancelled"
    assert begun.waited == []
    assert begun.names() == set()
    assert s3.unfinished_uploads(bucket) == []


def test_repeated_faults_end_in_a_retryable_error_that_names_the_object(s3: S3Endpoint, begun: Begun) -> None:
    for method in ("GET", "HEAD", "PUT"):
        s3.break_next(*(Fault("status", m, "", 99) for m in ("GET", "HEAD", "PUT")))
        acts: dict[str, Callable[[], object]] = {
            "GET": lambda: begun.storage.read_metadata(begun.reference),
            "HEAD": begun.streams,
            "PUT": lambda: begun.storage.publish_metadata(begun.reference, b"x"),
        }
        begun.waited.clear()
        with pytest.raises(RetryableError) as caught:
            acts[method]()
        assert caught.value.kind == "storage-io"
        assert begun.reference.directory in str(caught.value)
        assert "503" in str(caught.value)
        assert begun.waited[-3:] == [1, 2, 3]


@pytest.mark.parametrize("size", [5000, 3_000_000])
def test_a_truncated_answer_is_requested_again(s3: S3Endpoint, begun: Begun, tmp_path: Path, size: int) -> None:
    data = content(size)
    handle = begun.write(data)
    reader = begun.reader(handle, data)
    s3.break_next(Fault("truncate", "GET", handle.path, 2))
    assert reader.read(handle) == data
    s3.break_next(Fault("truncate", "GET", handle.path, 2))
    reader.copy_to(handle, str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == data
    s3.break_next(Fault("truncate", "GET", handle.path, 2))
    assert bytes(reader.read_range(handle, 7, size - 7)) == data[7:-7]


def test_a_repeatedly_truncated_answer_is_an_error_and_leaves_no_copy(
    s3: S3Endpoint, begun: Begun, tmp_path: Path
) -> None:
    handle = begun.write(content(5000))
    reader = begun.reader(handle, content(5000))
    s3.break_next(Fault("truncate", "GET", handle.path, 99))
    acts: list[Callable[[], object]] = [
        lambda: reader.read(handle),
        lambda: reader.read_range(handle, 0, 4000),
        lambda: reader.copy_to(handle, str(tmp_path / "copy")),
    ]
    for act in acts:
        with pytest.raises(RetryableError) as caught:
            act()
        assert caught.value.kind == "storage-io"
    assert not (tmp_path / "copy").exists()


def test_damaged_objects_are_detected(s3: S3Endpoint, begun: Begun, bucket: str, tmp_path: Path) -> None:
    data = content(5000)
    handle = begun.write(data)
    reader = begun.reader(handle, data)
    key = f"root/flights/chk-7/{handle.path}"
    directly = S3Store(bucket, endpoint=s3.direct_url, client_options={"allow_http": True})
    for damaged, kind in ((data[:-1], "size-mismatch"), (data[:-1] + b"?", "checksum-mismatch")):
        obstore.put(directly, key, damaged)
        for act in (lambda: reader.read(handle), lambda: reader.copy_to(handle, str(tmp_path / "copy"))):
            with pytest.raises(CorruptStateError, match=key) as caught:
                act()
            assert caught.value.kind == kind
        assert not (tmp_path / "copy").exists()
    obstore.delete(directly, key)
    with pytest.raises(NotFoundError, match=key) as missing:
        reader.read(handle)
    assert missing.value.kind == "missing-file"


def test_a_killed_writer_leaves_at_most_an_upload_that_can_be_aborted(s3: S3Endpoint, bucket: str) -> None:
    writer = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("s3_writer.py"), bucket, "root/a"], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout
    assert writer.stdout.readline() == "sending\n"
    deadline = time.monotonic() + 30
    while not s3.unfinished_uploads(bucket) and time.monotonic() < deadline:
        time.sleep(0.05)
    writer.kill()
    writer.communicate()
    assert Bucket(f"s3://{bucket}", IMPATIENT).list("root") == []
    ((key, upload),) = s3.unfinished_uploads(bucket)
    assert key == "root/a"
    s3.abort_upload(bucket, key, upload)
    assert s3.unfinished_uploads(bucket) == []


@pytest.mark.parametrize("end", ["", "raise RuntimeError('boom')", "sys.exit(3)"])
def test_a_process_with_an_open_stream_ends_and_publishes_nothing(begun: Begun, bucket: str, end: str) -> None:
    program = (
        "import sys; from statelib.storage.retries import IMPATIENT; from statelib.storage.objects.storage import *;"
        f"s = ObjectCheckpointStorage('s3://{bucket}/root', 'flights', IMPATIENT, 0);"
        f"f = s.resolve_checkpoint_storage_location(7, StorageReference('{begun.reference.directory}'), 'b' * 32, 0);"
        f"o = f.create_stream(CheckpointedStateScope.EXCLUSIVE); o.write(bytes(20_000_000)); {end}"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == {"": 0, "raise RuntimeError('boom')": 1, "sys.exit(3)": 3}[end], ended.stderr
    assert begun.names() == set()


def test_no_error_shows_the_endpoint_or_the_secret(
    s3: S3Endpoint, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole_text(error: BaseException | None) -> str:
        return f"{error!r} {error} {whole_text(error.__cause__ or error.__context__)}" if error else ""

    texts = []
    for status in (400, 401, 403, 404, 409, 412, 500, 503):
        s3.break_next(*(Fault("status", method, "", 99, status) for method in ("GET", "PUT", "HEAD")))
        for act in (
            lambda: begun.storage.initialize_location(ID),
            lambda: begun.storage.read_metadata(begun.reference),
        ):
            with pytest.raises(StatelibError) as caught:
                act()
            texts.append(whole_text(caught.value))
    s3.break_next()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(RetryableError) as unreachable:
        begun.storage.read_metadata(begun.reference)
    texts += [whole_text(unreachable.value), repr(begun.storage), repr(begun.streams), repr(begun.reader)]
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == CANARY
    assert [text for text in texts if CANARY in text or "127.0.0.1" in text] == []


def test_the_error_for_a_missing_bucket_names_it(s3: S3Endpoint) -> None:
    with pytest.raises(NotFoundError, match="no such bucket") as caught:
        Begun("no-such-bucket")
    assert caught.value.kind == "no-bucket"


def test_a_published_location_is_taken_even_if_the_reply_was_lost(s3: S3Endpoint, begun: Begun) -> None:
    s3.break_next(Fault("lost", "PUT", "_metadata"))
    begun.storage.publish_metadata(begun.reference, b"x")
    with pytest.raises(ConflictError):
        begun.storage.initialize_location(ID)


def test_a_merged_object_that_cannot_be_sent_leaves_nothing(s3: S3Endpoint, begun: Begun) -> None:
    """Nothing is sent before the flush; an object that a lost answer leaves is removed with the segments."""
    worker = begun.storage.to_file_merging_storage(FileMergingSettings())
    streams = worker.resolve_checkpoint_storage_location(CheckpointId(7), DEFAULT_REFERENCE, AttemptId("c" * 32), 0)
    written = []
    for size in (500, 700):
        stream = streams.create_stream(CheckpointedStateScope.EXCLUSIVE)
        stream.write(content(size))
        written.append(stream.close_and_get_handle())
    assert begun.names() == set()
    s3.break_next(Fault("lost", "PUT", "c" * 32, 9))
    with pytest.raises(RetryableError):
        streams.flush()
    s3.break_next()
    assert len(begun.names()) == 1, "it arrived, and the answer was lost"
    for each in written:
        streams.discard(each.handle)
    assert begun.names() == set()
    assert streams.flush() == {}
