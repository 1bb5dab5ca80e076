"""A standalone Spark cluster on loopback: a master, and a worker on each of 127.0.0.1 and 127.0.0.2, which Spark takes
for two hosts."""

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
"""Prefixes of variables that workers do not get. Executors inherit the environment of their worker. From the deployment
they need only the credentials of the storage, and whether these may be sent to an ``http:`` endpoint."""


class SparkClusterError(RuntimeError):
    """A daemon ended, or the workers did not come up in time; the message names the log."""


class SparkCluster:
    """The processes of the cluster. ``environment``: that of the deployment, including the credentials of the
    storage."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        for_workers = {
            name: value
            for name, value in environment.items()
            if name == ALLOW_HTTP or not name.startswith(NOT_FOR_WORKERS)
        }
        self._environment = for_workers | _DAEMON
        self.port, self._web = unused_ports(2)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """The URL that applications connect to."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def page(self) -> str:
        """The URL of the web page of the master."""
        return f"http://127.0.0.1:{self._web}"

    def start(self) -> None:
        """Start master and workers, and return once every worker has registered with the master. Raises
        SparkClusterError."""
        ports = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self._web)]
        self._start("master", "master.Master", ports)
        for host in HOSTS:
            self.start_worker(host)
        self.wait_for_workers(len(HOSTS))

    def start_worker(self, host: str) -> None:
        """Start the worker of a host. It has two cores, so that two applications can run at once with one executor
        each."""
        work = self._directory / host
        (work / "local").mkdir(parents=True, exist_ok=True)
        own = {"SPARK_LOCAL_IP": host, "SPARK_LOCAL_DIRS": str(work / "local")}
        size = ["--cores", "2", "--memory", "2g", "--webui-port", "0", "-d", str(work)]
        self._start(host, "worker.Worker", ["--host", host, *size, self.url], own)

    def kill_worker(self, host: str) -> int:
        """Send SIGKILL to a worker, its executors and their Python processes; return the number of these processes."""
        members = family(self._processes.pop(host).pid)
        for member in members:
            kill(member)
        psutil.wait_procs(members, STOP_AFTER_S)
        return len(members)

    def workers(self) -> list[str]:
        """Return the hosts of the workers that the master lists as alive, sorted."""
        return sorted(worker["host"] for worker in self.state()["workers"] if worker["state"] == "ALIVE")

    def state(self) -> dict[str, Any]:
        """Return the state of the cluster as the master's JSON page shows it."""
        with urllib.request.urlopen(f"{self.page}/json/", timeout=10) as answer:  # noqa: S310 - our own loopback URL
            return dict(json.load(answer))

    def wait_for_workers(self, count: int, patience_s: float = PATIENCE_S) -> None:
        """Return once ``count`` workers are alive. Raises SparkClusterError when that takes too long."""
        deadline = time.monotonic() + patience_s
        while self._worker_count() != count:
            self.check()
            if time.monotonic() > deadline:
                raise SparkClusterError(
                    f"{count} workers were expected after {patience_s:.0f} s; see {self._directory}"
                )
            time.sleep(0.2)

    def check(self) -> None:
        """Raise SparkClusterError if a daemon has ended, other than by :meth:`kill_worker`."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise SparkClusterError(f"Spark's {name} ended with status {process.returncode}: {self._log(name)}")

    def stop(self) -> None:
        """Send SIGTERM to the daemons, then SIGKILL to each of them and of their descendants that is left."""
        members = [member for process in self._processes.values() for member in family(process.pid)]
        for process in self._processes.values():
            process.terminate()
        _, left = psutil.wait_procs(members, STOP_AFTER_S)
        for member in left:
            kill(member)
        for process in self._processes.values():
            process.wait()

    def _worker_count(self) -> int:
        """Return the number of workers that are alive; -1 while the master does not answer."""
        try:
            return len(self.workers())
        except OSError:
            return -1

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _start(self, name: str, daemon: str, arguments: list[str], own: Mapping[str, str] | None = None) -> None:
        """Start a daemon in a session of its own, so that Ctrl-C reaches only this process."""
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
    """Start a cluster, and stop it when the block ends. Logs and work directories are in ``directory``."""
    cluster = SparkCluster(directory, environment)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
