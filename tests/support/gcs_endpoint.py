"""An endpoint for clients of Google Cloud Storage: the S3 endpoint of the tests, behind a translator of headers.

Google's XML API differs from S3 in the names of some headers: a condition on the object's generation in place of
If-None-Match, and prefixes. Source: the reference of the XML API. What a real bucket answers is tried with
STATELIB_TEST_GCS only.

``python -m tests.support.gcs_endpoint <host:port of the S3 endpoint>`` starts it, prints its port, and ends it when its
standard input ends, so also when the test was killed."""

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

from tests.support.s3_endpoint import SIGNED, S3Endpoint

_DROPPED = {"connection", "host", "transfer-encoding", "keep-alive", "authorization"}
_IF_GENERATION = "x-goog-if-generation-match"
_STOP_TIMEOUT_S = 10


@dataclass(frozen=True)
class GoogleEndpoint:
    """An endpoint. ``s3``: the endpoint behind it, which has the same buckets. ``account``: a file with a service
    account that names the endpoint."""

    s3: S3Endpoint
    account: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables with which a process uses the endpoint."""
        return {"GOOGLE_SERVICE_ACCOUNT": str(self.account), "STATELIB_ALLOW_HTTP": "true"}


@contextmanager
def google_endpoint(s3: S3Endpoint, directory: Path) -> Iterator[GoogleEndpoint]:
    """Yield an endpoint whose objects are those of ``s3``. ``directory``: where the service account is written."""
    command = [sys.executable, "-m", "tests.support.gcs_endpoint", s3.url.removeprefix("http://")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError("the endpoint for clients of Google did not start")
            account = directory / "account.json"
            keys = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
            account.write_text(json.dumps({**keys, "gcs_base_url": f"http://127.0.0.1:{port}"}))
            yield GoogleEndpoint(s3, account)
        finally:
            process.stdin.close()
            process.wait(_STOP_TIMEOUT_S)


class _Front(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    upstream: str


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Front

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name for it
        """Print nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=60)
        try:
            upstream.request(self.command, _path_for_s3(self.path), body, _headers_for_s3(self.headers))
            answer = upstream.getresponse()
            data = answer.read()
        finally:
            upstream.close()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _DROPPED and (name.lower() != "content-length" or self.command == "HEAD"):
                self.send_header(name.lower().replace("x-amz-", "x-goog-"), value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the base class looks for these


def _path_for_s3(path: str) -> str:
    """Return the path of a request without the escapes that S3 does not expect."""
    resource, mark, query = path.partition("?")
    return quote(unquote(resource)) + mark + query


def _headers_for_s3(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request to Google as those of a request to S3."""
    translated = {"Authorization": SIGNED["Authorization"]}
    for name, value in headers.items():
        if name.lower() == _IF_GENERATION:
            assert value == "0", "an object is only ever written if there is none"
            translated["If-None-Match"] = "*"
        elif name.lower() not in _DROPPED:
            translated[name.lower().replace("x-goog-", "x-amz-")] = value
    return translated


def main(arguments: Sequence[str]) -> None:
    """Run the endpoint until standard input ends."""
    with _Front(("127.0.0.1", 0), _Handler) as front:
        front.upstream = arguments[0]
        threading.Thread(target=front.serve_forever, daemon=True).start()
        sys.stdout.write(f"{front.server_port}\n")
        sys.stdout.flush()
        sys.stdin.read()
        front.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
