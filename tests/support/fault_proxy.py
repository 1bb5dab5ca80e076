"""An HTTP proxy that passes every request on to one server, except those that a test selects to be broken.

It runs in a process of its own. ``PUT /__faults`` with a JSON list of :class:`Fault` replaces the faults."""

import http.client
import json
import re
import socket
import struct
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

FAULTS_PATH = "/__faults"

Kind = Literal["status", "error-body", "reset", "lost", "truncate", "shorten", "stale", "slow", "hold", "unconditional"]
_HOP = {"connection", "host", "transfer-encoding", "keep-alive"}

_ERROR = (
    b"<Error><Code>InternalError</Code><Message>We encountered an internal error. Please try again.</Message></Error>"
)
_LISTED = re.compile(rb"<Contents>.*?<LastModified>(.*?)</LastModified>.*?</Contents>", re.DOTALL)


@dataclass
class Fault:
    """A fault of the next ``times`` requests of ``method`` whose path and query contain ``part``.

    ``status``: answer with this status, and do not pass the request on. ``error-body``: the same with 200, and S3's
    error as the body. ``reset``: cut the connection before. ``lost``: pass it on, then cut. ``truncate``: cut in the
    middle of the answer. ``shorten``: answer with half the body as if it were all. ``stale``: leave the newest
    object out of a listing. ``slow``: wait 300 ms. ``hold``: pass it on once the faults are replaced, also if the
    client is dead by then; so with its repetitions. ``GET /__faults`` lists what is held. ``unconditional``: pass it on
    without If-None-Match."""

    kind: Kind
    method: str
    part: str = ""
    times: int = 1
    status: int = 503

    def to_json(self) -> dict[str, str | int]:
        return asdict(self)


class FaultProxy(ThreadingHTTPServer):
    """A proxy that listens on a free port of 127.0.0.1; ``upstream`` is a port there."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, upstream: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.one_at_a_time = threading.Lock()
        """Held for each conditional request: the server looks and writes in two steps, S3 does both in one."""
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._held: dict[tuple[str, str], Fault] = {}
        self._replaced = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about a client that has disconnected, perhaps because it was killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def script(self, faults: list[Fault]) -> None:
        with self._lock:
            self._faults, self._held = faults, {}
            self._replaced.set()
            self._replaced = threading.Event()

    def held(self) -> list[str]:
        """Return the paths of the requests that wait for new faults."""
        with self._lock:
            return [path for _, path in self._held]

    def hold(self, fault: Fault, method: str, path: str) -> None:
        with self._lock:
            if not any(each is fault for each in self._faults):
                return
            self._held[method, path] = fault
            replaced = self._replaced
        replaced.wait()

    def fault_of(self, method: str, path: str) -> Fault | None:
        with self._lock:
            if (method, path) in self._held:  # its client has lost patience
                return self._held[method, path]
            for fault in self._faults:
                if fault.times > 0 and fault.method == method and fault.part in path:
                    fault.times -= 1
                    return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """Without this, the kernel holds the body of each answer back for 40 ms, until the client confirms the headers."""
    server: FaultProxy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name for it
        """Print nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == FAULTS_PATH:
            if self.command == "PUT":
                self.server.script([Fault(**fault) for fault in json.loads(body)])
            self._answer(200, [], json.dumps(self.server.held()).encode())
            return
        fault = self.server.fault_of(self.command, self.path)
        kind = fault.kind if fault else ""
        if kind == "reset":
            self._cut()
        elif kind == "status" and fault:
            self._answer(fault.status, [], b"")
        elif kind == "error-body":
            self._answer(200, [("Content-Type", "application/xml")], _ERROR)
        else:
            if kind == "slow":
                time.sleep(0.3)
            if kind == "hold" and fault:
                self.server.hold(fault, self.command, self.path)
            self._pass_on(body, kind)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the base class looks for these

    def _pass_on(self, body: bytes, kind: str) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        if kind == "unconditional":
            headers = {name: value for name, value in headers.items() if name.lower() != "if-none-match"}
        is_conditional = any(name.lower() in ("if-match", "if-none-match") for name in headers)
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)
        try:
            with self.server.one_at_a_time if is_conditional else nullcontext():
                upstream.request(self.command, self.path, body, headers)
                answer = upstream.getresponse()
                data = answer.read()
        finally:
            upstream.close()
        if kind == "lost":
            self._cut()
            return
        if kind == "shorten":
            data = data[: len(data) // 2]
        if kind == "stale":
            data = _without_newest(data)
        self._answer(answer.status, answer.getheaders(), data, half=kind == "truncate")

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, half: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP and (name.lower() != "content-length" or self.command == "HEAD"):
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if half else data)
        if half:
            self._cut()

    def _cut(self) -> None:
        """End the connection so that the other side notices at once: by a reset."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()


def _without_newest(listing: bytes) -> bytes:
    newest = max(_LISTED.finditer(listing), key=lambda match: match[1], default=None)
    return listing if newest is None else listing[: newest.start()] + listing[newest.end() :]
