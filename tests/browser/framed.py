"""The built State page on loopback in a frame like Airflow's, for tests of the frame alone.

Nobody is signed in here: every request to the API is refused, as Airflow refuses it, and the page shows that."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DIST = Path(__file__).resolve().parents[2] / "plugins" / "statelib_airflow" / "page" / "dist"
SANDBOX = "allow-scripts allow-same-origin allow-forms allow-downloads"
"""The rights that Airflow 3.3 gives to the frame of a plugin."""
OUTSIDE = f"""<!doctype html><html lang="en" class="dark"><head><title>Airflow</title></head>
<body><iframe title="State" sandbox="{SANDBOX}" src="/statelib/" width="1200" height="700"></iframe></body></html>"""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self';"
    " connect-src 'self'; frame-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path.startswith("/statelib/api/"):
            self._send(401, json.dumps({"detail": "Not authenticated"}).encode(), "application/json")
        elif path.startswith("/statelib/"):
            file = DIST / (path.removeprefix("/statelib/") or "index.html")
            self._send(200, file.read_bytes(), TYPES[file.suffix], {"Content-Security-Policy": POLICY})
        elif "/plugin/" in path:
            self._send(200, OUTSIDE.encode(), TYPES[".html"])
        else:
            self._send(200, b"<!doctype html><title>Airflow</title>Airflow", TYPES[".html"])

    def _send(self, status: int, body: bytes, content_type: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": content_type, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Print nothing."""


@contextmanager
def framed_page() -> Iterator[str]:
    """Yield the address of the framed page, without a slash at the end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
