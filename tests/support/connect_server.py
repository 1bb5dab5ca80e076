"""A Spark Connect server on loopback, and commands that use it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from demo.spark_start import fast_start
from tests.support.announced_port import announced_port
from tests.support.worlds import CHECKOUT

_PORT = re.compile(r"Successfully started service '\S*SparkConnectService' on port (\d+)")
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_RESOURCE = "spark-internal"
"""What spark-submit is given in place of a file: the class is part of Spark."""
SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.python.daemon.module": "statelib.spark.session.daemon",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True)
class ConnectServer:
    """A running server. ``code``: a directory from which clients and workers import users' functions."""

    url: str
    code: Path
    pid: int

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a client."""
        return _environment(self.code) | {"SPARK_REMOTE": self.url} | more

    def start(self, *words: object, variables: Mapping[str, str]) -> "subprocess.Popen[str]":
        """Start Python with the words as a client."""
        return subprocess.Popen(
            [sys.executable, *map(str, words)],
            cwd=CHECKOUT,
            env=self.environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *words: object, variables: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        """Run Python with the words as a client, and return its output and status."""
        client = self.start(*words, variables=variables)
        out, err = client.communicate()
        return subprocess.CompletedProcess(client.args, client.returncode, out, err)


@contextmanager
def connect_server(
    code: Path, master: str = "local[2]", token: str | None = None, **settings: str
) -> Iterator[ConnectServer]:
    """Start a server, yield it, and end it with all processes that it started. ``code``: a directory for users'
    functions. ``token``: what clients must know, if not None. ``settings``: further settings of Spark, with ``_`` in
    place of each dot."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    if token is not None:
        named["spark.connect.authenticate.token"] = token
    options = [word for pair in {**SETTINGS, **named}.items() for word in ("--conf", "=".join(pair))]
    submit = Path(sys.executable).with_name("spark-submit")
    server = subprocess.Popen(
        [submit, "--master", master, "--class", _CLASS, *options, _RESOURCE],
        env=_environment(code),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert server.stderr is not None
        port = announced_port(server.stderr, _PORT)
        url = f"sc://127.0.0.1:{port}" if token is None else f"sc://localhost:{port}/;token={quote(token)}"
        yield ConnectServer(url, code, server.pid)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def _environment(code: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    path = f"{CHECKOUT}{os.pathsep}{code}"
    python = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    return inherited | python | {"SPARK_LOCAL_IP": "127.0.0.1"} | fast_start()
