"""A standalone Spark on loopback: a master, and workers on 127.0.0.1 and 127.0.0.2, which count as two hosts."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from demo.processes import family, kill, unused_ports
from statelib.storage.objects.clients import ALLOW_HTTP

HOSTS = ("127.0.0.1", "127.0.0.2")
PATIENCE_S = 300.0
STOP_AFTER_S = 10.0
_DAEMON = {"SPARK_DAEMON_MEMORY": "256m"}
NOT_FOR_WORKERS = ("AIRFLOW", "STATELIB_")
"""Executors inherit the environment of their worker. Of the deployment they need the storage's credentials, and whether
these may be sent to an ``http:`` endpoint, only."""


class SparkClusterError(RuntimeError):
    """A daemon ended, or the workers did not come up in time; the message names the log."""


class SparkCluster:
    """``environment``: of the deployment, the storage's credentials among it."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        kept = {
            name: value
            for name, value in environment.items()
            if name == ALLOW_HTTP or not name.startswith(NOT_FOR_WORKERS)
        }
        self._environment = kept | _DAEMON
        self.port, self._web = unused_ports(2)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def page(self) -> str:
        """Of the master, for people."""
        return f"http://127.0.0.1:{self._web}"

    def start(self) -> None:
        """Master and workers; returns once every worker is known to the master."""
        ports = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self._web)]
        self._start("master", "master.Master", ports)
        for host in HOSTS:
            self.start_worker(host)
        self.wait_for_workers(len(HOSTS))

    def start_worker(self, host: str) -> None:
        """Two cores, so that two applications run at once; one executor of each."""
        work = self._directory / host
        (work / "local").mkdir(parents=True, exist_ok=True)
        own = {"SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(work / "local")}
        size = ["--cores", "2", "--memory", "2g", "--webui-port", "0", "-d", str(work)]
        self._start(host, "worker.Worker", ["--host", host, *size, self.url], own)

    def kill_worker(self, host: str) -> int:
        """SIGKILL to a worker, its executors and their Python processes, all of them; returns how many there were."""
        members = family(self._processes.pop(host).pid)
        for member in members:
            kill(member)
        psutil.wait_procs(members, STOP_AFTER_S)
        return len(members)

    def workers(self) -> list[str]:
        """Hosts of the workers that the master believes alive."""
        return sorted(worker["host"] for worker in self.state()["workers"] if worker["state"] == "ALIVE")

    def state(self) -> dict[str, Any]:
        """What the master says of itself."""
        with urllib.request.urlopen(f"{self.page}/json/", timeout=10) as answer:  # noqa: S310 - our own loopback URL
            return dict(json.load(answer))

    def wait_for_workers(self, count: int, patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while self._known() != count:
            self.check()
            if time.monotonic() > deadline:
                raise SparkClusterError(
                    f"{count} workers were expected after {patience_s:.0f} s; see {self._directory}"
                )
            time.sleep(0.2)

    def check(self) -> None:
        """Raises SparkClusterError when a daemon has ended by itself."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise SparkClusterError(f"Spark's {name} ended with status {process.returncode}: {self._log(name)}")

    def stop(self) -> None:
        """SIGTERM to the daemons, then SIGKILL to whatever is left of their families."""
        known = [member for process in self._processes.values() for member in family(process.pid)]
        for process in self._processes.values():
            process.terminate()
        _, left = psutil.wait_procs(known, STOP_AFTER_S)
        for member in left:
            kill(member)
        for process in self._processes.values():
            process.wait()

    def _known(self) -> int:
        try:
            return len(self.workers())
        except OSError:
            return -1

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _start(self, name: str, daemon: str, arguments: list[str], own: Mapping[str, str] | None = None) -> None:
        """In a session of its own, so that Ctrl-C reaches only us."""
        command = [str(Path(sys.executable).parent / "spark-class"), f"org.apache.spark.deploy.{daemon}", *arguments]
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603
                command,
                env=self._environment | dict(own or {}),
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


@contextmanager
def spark_cluster(directory: Path, environment: Mapping[str, str]) -> Iterator[SparkCluster]:
    """A running cluster, gone when the block ends. Logs and work directories lie in ``directory``."""
    cluster = SparkCluster(directory, environment)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
