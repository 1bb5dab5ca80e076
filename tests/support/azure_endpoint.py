"""An Azure Blob endpoint for tests: Azurite, in a process of its own.

``python -m tests.support.azure_endpoint <main.js of Azurite>`` starts it, prints its port, and ends it when its
standard input ends, so also when the test was killed."""

import base64
import hashlib
import hmac
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from tests.support.announced_port import announced_port

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of every Azurite's account from its documentation, which is no secret."""

_VERSION = "2021-08-06"
_LISTENS = re.compile(r"listens on http://127\.0\.0\.1:(\d+)")
_STOP_TIMEOUT_S = 10


@dataclass(frozen=True)
class AzureEndpoint:
    url: str

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables with which a process uses the endpoint."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": self.url,
            "STATELIB_ALLOW_HTTP": "true",
        }

    def make_container(self, name: str) -> None:
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        signed = "\n".join(f"{header}:{value}" for header, value in headers.items())
        text = "PUT" + "\n" * 12 + f"{signed}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        signature = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
        request = urllib.request.Request(
            f"{self.url}/{name}?restype=container", b"", {**headers, "Content-Type": ""}, method="PUT"
        )
        with urllib.request.urlopen(request, timeout=30):
            return


@contextmanager
def azure_endpoint(main_js: Path) -> Iterator[AzureEndpoint]:
    """Yield a new, empty endpoint, which is removed afterwards."""
    command = [sys.executable, "-m", "tests.support.azure_endpoint", str(main_js)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError(f"the Azure endpoint did not start with {main_js}")
            yield AzureEndpoint(f"http://127.0.0.1:{port}/{ACCOUNT}")
        finally:
            process.stdin.close()
            process.wait(_STOP_TIMEOUT_S)


def main(arguments: Sequence[str]) -> None:
    """Run the endpoint until standard input ends."""
    where = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence"]
    command = ["node", arguments[0], *where, "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            sys.stdout.write(f"{announced_port(server.stdout, _LISTENS)}\n")
            sys.stdout.flush()
            sys.stdin.read()
        finally:
            server.kill()


if __name__ == "__main__":
    main(sys.argv[1:])
