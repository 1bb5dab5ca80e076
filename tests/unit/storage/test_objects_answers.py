"""Answers of an object storage whose status alone does not say what they mean."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from statelib.errors import NotFoundError
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.removal import ObjectRemover
from statelib.storage.retries import IMPATIENT, Retries, wait_never


class _Answers(BaseHTTPRequestHandler):
    """An endpoint of S3 without a bucket. It waits in vain for the bytes of the first PUT."""

    puts: list[str]

    def do_GET(self) -> None:
        self._answer(404, "NoSuchBucket")

    def do_HEAD(self) -> None:
        self._answer(404, "")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(404, "NoSuchBucket")

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.puts.append(self.path)
        self._answer(*((400, "RequestTimeout") if len(self.puts) == 1 else (200, "")))

    def _answer(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", "e")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the list of the paths that were put to the endpoint."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {"ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "REGION": "r", "ACCESS_KEY_ID": "a"}
    for name, value in {**settings, "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("STATELIB_ALLOW_HTTP", "true")
    _Answers.puts = []
    yield _Answers.puts
    server.shutdown()
    server.server_close()


def test_a_put_that_the_storage_waited_too_long_for_is_repeated(puts: list[str]) -> None:
    """S3 answers with status 400, which otherwise says that the request itself is wrong."""
    Bucket("s3://bucket", Retries((0.0,), wait_never)).put("a", 1, lambda: iter([b"x"]))
    assert puts == ["/bucket/a", "/bucket/a"]


@pytest.mark.usefixtures("puts")
def test_a_listing_without_a_bucket_names_it() -> None:
    remover = ObjectRemover(IMPATIENT)
    for listing in (remover.list_files, remover.list_directories):
        with pytest.raises(NotFoundError, match="no such bucket") as refusal:
            listing("s3://bucket/state")
        assert refusal.value.kind == "no-bucket"


@pytest.mark.usefixtures("puts")
def test_nothing_is_left_to_remove_in_a_bucket_that_is_gone() -> None:
    """gc removes what is left of a savepoint whose bucket its user has deleted."""
    place, remover = "s3://bucket/savepoint-tally-3", ObjectRemover(IMPATIENT)
    assert not remover.remove_file(f"{place}/_metadata", [place])
    remover.remove_files([f"{place}/a", f"{place}/b"], [place])
    assert not remover.remove_directory(place, ["s3://bucket"])
