"""An answer of an object storage that breaks off is continued where it ended."""

import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from statelib.errors import CorruptStateError, RetryableError
from statelib.storage.objects.bucket import BLOCK_BYTES, Bucket
from statelib.storage.retries import IMPATIENT, Retries, wait_never

DATA = b"".join(number.to_bytes(4) for number in range(BLOCK_BYTES))
AT_ONCE = BLOCK_BYTES * 3 // 2
"""The bytes after which the storage of these tests breaks an answer off."""


class _BreaksOff(BaseHTTPRequestHandler):
    """An endpoint with one object, which sends at most a part of what it announces."""

    protocol_version = "HTTP/1.1"
    versions: Iterator[str]

    def do_GET(self) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, stop = (int(wanted[1]), int(wanted[2]) + 1) if wanted else (0, len(DATA))
        if start >= len(DATA):
            self.send_error(416)
            return
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(DATA)}")
        self.send_header("ETag", next(self.versions))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(DATA[start : min(stop, start + AT_ONCE)])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Print nothing."""


Breaking = Callable[[Iterator[str]], None]


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Breaking]:
    """Return the function that sets the versions of the object in the answers to come."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _BreaksOff)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {"ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "REGION": "r", "ACCESS_KEY_ID": "a"}
    for name, value in {**settings, "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("STATELIB_ALLOW_HTTP", "true")
    yield lambda versions: setattr(_BreaksOff, "versions", versions)
    server.shutdown()
    server.server_close()


def read(retries: Retries) -> tuple[bytes, int]:
    """Return the bytes of the object, and how often it was begun."""
    received, begun = bytearray(), 0

    def begin(size_bytes: int) -> Callable[[memoryview], None]:
        nonlocal begun
        assert size_bytes == len(DATA)
        begun += 1
        received.clear()
        return received.extend

    Bucket("s3://bucket", retries).scan("key", begin)
    return bytes(received), begun


def test_an_object_is_read_in_more_answers_than_there_are_retries(breaking: Breaking) -> None:
    breaking(iter(['"one"'] * 9))
    assert read(Retries((0.0,), wait_never)) == (DATA, 1)


def test_an_object_that_changes_is_read_from_its_start_again(breaking: Breaking) -> None:
    breaking(iter(['"one"', *['"two"'] * 9]))
    assert read(Retries((0.0,), wait_never)) == (DATA, 2)


def test_a_storage_without_patience_answers_once(breaking: Breaking) -> None:
    breaking(iter(['"one"'] * 9))
    with pytest.raises(RetryableError, match="no whole answer came"):
        read(IMPATIENT)


@pytest.mark.usefixtures("breaking")
def test_a_range_beyond_the_end_of_an_object_is_damage() -> None:
    with pytest.raises(CorruptStateError, match="ends before the bytes") as damage:
        Bucket("s3://bucket", IMPATIENT).read_range("key", len(DATA), len(DATA) + 1)
    assert damage.value.kind == "size-mismatch"
