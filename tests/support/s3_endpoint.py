"""An S3 endpoint for tests, with a :class:`~tests.support.fault_proxy.FaultProxy` in front of it.

Both run outside the test's process: ``python -m tests.support.s3_endpoint <interpreter that has moto>`` starts them,
prints their ports, and ends both when its standard input ends, also if the test was killed."""

import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.announced_port import announced_port
from tests.support.fault_proxy import FAULTS_PATH, Fault, FaultProxy

CANARY = "canary-secret-8cfd1b7e"
"""The secret key of the tests, which must not appear anywhere."""

SIGNED = {"Authorization": "AWS test:unchecked", "Content-Type": "application/octet-stream"}
"""A signature that is enough for an endpoint that checks none. Without a type, the endpoint takes the bytes for a
form."""

_RUNNING = re.compile(r"Running on http://127\.0\.0\.1:(\d+)")
_STOP_TIMEOUT_S = 10


@dataclass(frozen=True)
class S3Endpoint:
    """An endpoint. ``url`` goes through the proxy, which can break requests; ``direct_url`` does not. ``pid``: its
    process, which has children."""

    url: str
    direct_url: str
    pid: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables with which a process uses the endpoint."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": CANARY,
            "STATELIB_ALLOW_HTTP": "true",
        }

    def break_next(self, *faults: Fault) -> None:
        """Break the next requests by these faults, which replace all earlier ones."""
        _request(f"{self.url}{FAULTS_PATH}", "PUT", json.dumps([fault.to_json() for fault in faults]).encode())

    def held(self) -> list[str]:
        """Return the paths of the requests that a fault ``hold`` keeps waiting."""
        return [str(path) for path in json.loads(_request(f"{self.url}{FAULTS_PATH}", "GET"))]

    def make_bucket(self, name: str) -> None:
        _request(f"{self.direct_url}/{name}", "PUT")

    def put_object(self, bucket: str, key: str, data: bytes) -> None:
        """Store an object without the code under test."""
        _request(f"{self.direct_url}/{bucket}/{key}", "PUT", data, SIGNED)

    def unfinished_uploads(self, bucket: str) -> list[tuple[str, str]]:
        """Return (key, upload id) of each multipart upload that was neither completed nor aborted."""
        answer = _request(f"{self.direct_url}/{bucket}?uploads", "GET").decode()
        keys, ids = (re.findall(f"<{tag}>([^<]+)</{tag}>", answer) for tag in ("Key", "UploadId"))
        return list(zip(keys, ids, strict=True))

    def abort_upload(self, bucket: str, key: str, upload: str) -> None:
        _request(f"{self.direct_url}/{bucket}/{key}?uploadId={upload}", "DELETE")


def _request(url: str, method: str, data: bytes | None = None, headers: Mapping[str, str] = {}) -> bytes:
    request = urllib.request.Request(url, data, dict(headers), method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bytes(answer.read())


@contextmanager
def s3_endpoint(interpreter: Path) -> Iterator[S3Endpoint]:
    """Yield a new, empty endpoint, which is removed afterwards. ``interpreter``: a Python that has
    ``moto[server]``."""
    command = [sys.executable, "-m", "tests.support.s3_endpoint", str(interpreter)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            ports = process.stdout.readline().split()
            if len(ports) != 2:
                raise RuntimeError(f"the S3 endpoint did not start with {interpreter}")
            yield S3Endpoint(f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}", process.pid)
        finally:
            process.stdin.close()
            process.wait(_STOP_TIMEOUT_S)


def main(arguments: Sequence[str]) -> None:
    """Run endpoint and proxy until standard input ends."""
    command = [arguments[0], "-I", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        try:
            proxy = FaultProxy(announced_port(server.stderr, _RUNNING))
            threading.Thread(target=proxy.serve_forever, daemon=True).start()
            sys.stdout.write(f"{proxy.server_port} {proxy.upstream}\n")
            sys.stdout.flush()
            sys.stdin.read()
        finally:
            server.kill()


if __name__ == "__main__":
    main(sys.argv[1:])
