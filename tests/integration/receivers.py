"""Receivers of metrics and lineage on loopback, as real ones would be there: StatsD over UDP, and HTTP."""

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class StatsD:
    """A receiver of StatsD. Each line has one value: ``name,tag=value:number|kind``."""

    port: int
    lines: list[str] = field(default_factory=list)

    def values(self, name: str) -> dict[str, float]:
        """Return the last value for each combination of tags, which are written as they were sent."""
        results = (line.partition(":") for line in self.lines)
        return {
            head.partition(",")[2]: float(rest.partition("|")[0])
            for head, _, rest in results
            if head.partition(",")[0] == name
        }


@contextmanager
def statsd() -> Iterator[StatsD]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        received = StatsD(listener.getsockname()[1])
        thread = threading.Thread(target=_listen, args=(listener, received), daemon=True)
        thread.start()
        yield received
        listener.sendto(b"", ("127.0.0.1", received.port))
        thread.join()


def _listen(listener: socket.socket, received: StatsD) -> None:
    while data := listener.recv(65_536):
        received.lines += data.decode().splitlines()


@dataclass
class Posted:
    """Requests of one HTTP receiver: (path, body)."""

    port: int
    requests: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def http() -> Iterator[Posted]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            packed = self.headers.get("Content-Encoding") == "gzip"
            received.requests.append((self.path, gzip.decompress(body) if packed else body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Posted(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
