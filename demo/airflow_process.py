"""Airflow's components as processes that are started together and stopped one by one."""

import fcntl
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from demo.airflow_client import AirflowClient
from demo.places import Places, Ports, environment
from demo.processes import family, kill, unused_ports

SCHEDULER = "scheduler"
COMPONENTS = ("api-server", SCHEDULER, "dag-processor")
RESTARTED = (SCHEDULER, "triggerer")
"""The components that are started again when they have ended. On SQLite they can end because the database was locked,
or because they met rows of a write that was rolled back (ObjectDeletedError)."""
RESTARTS_COUNT_FOR_S = 600.0
STOP_AFTER_S = 20.0


class AirflowStartError(RuntimeError):
    """A component ended, or did not become healthy in time; the message ends with its log's tail."""


@dataclass(frozen=True)
class RunningAirflow:
    """An Airflow that runs: a client for its API, its URL, its environment, and its processes by component."""

    client: AirflowClient
    url: str
    environment: dict[str, str]
    processes: dict[str, subprocess.Popen[bytes]]


def free_ports() -> Ports:
    """Return three ports of 127.0.0.1 on which no process listens right now."""
    return Ports(*unused_ports(3))


def migrate(places: Places) -> None:
    """Create Airflow's local settings, its database and statelib's catalog, or bring them up to date. Takes about 5 s
    of CPU."""
    places.make_directories()
    settings = places.airflow / "config" / "airflow_local_settings.py"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text("from statelib_airflow.preloading import preload\n\npreload()\n")
    env = environment(places, Ports())
    with (places.airflow / "migrate.log").open("wb") as log:
        for command in ([_airflow_binary(places), "db"], [sys.executable, "-m", "statelib", "catalog"]):
            result = subprocess.run([*command, "migrate"], env=env, stdout=log, stderr=log, check=False)  # noqa: S603
            if result.returncode:
                tail = Path(log.name).read_text(errors="replace")[-2000:]
                raise AirflowStartError(f"{' '.join(command)} migrate ended with status {result.returncode}:\n{tail}")


@contextmanager
def exclusive(places: Places) -> Iterator[None]:
    """Hold the lock of a work folder while the block runs, so that only one Airflow at a time uses the folder. Raises
    AirflowStartError if another process holds it."""
    places.airflow.mkdir(parents=True, exist_ok=True)
    with (places.work / "airflow.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AirflowStartError(
                f"another `make demo`, `make up` or `make cluster` runs over {places.work}: stop it first"
            ) from None
        yield


@contextmanager
def airflow(
    places: Places,
    ports: Ports,
    components: Sequence[str] = COMPONENTS,
    patience_s: float = 420.0,
    settings: Mapping[str, str] | None = None,
) -> Iterator[RunningAirflow]:
    """Start the components of a migrated Airflow, and stop them when the block ends. ``settings``: further variables of
    its environment.

    The Airflow is healthy when this yields; every process is gone when the block has ended. The logs of the components
    are in ``<airflow>/<component>.log``. Raises AirflowStartError.
    """
    env = environment(places, ports) | dict(settings or {})
    url = f"http://127.0.0.1:{ports.api}"
    processes: dict[str, subprocess.Popen[bytes]] = {}
    supervisor = Supervisor(processes, lambda name: _start(places, name, env), lambda name: _log_file(places, name))
    client = AirflowClient(url, supervisor.check)
    try:
        for name in components:
            processes[name] = _start(places, name, env)
        _wait_until_healthy(places, client, processes, patience_s)
        yield RunningAirflow(client, url, env, processes)
    finally:
        stop(processes)


def _airflow_binary(places: Places) -> str:
    return str(Path(environment(places, Ports())["PATH"].split(os.pathsep)[0]) / "airflow")


def _log_file(places: Places, component: str) -> Path:
    """Return the log file of a component."""
    return places.airflow / f"{component}.log"


def _start(places: Places, component: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a component in a session of its own: Ctrl-C reaches only this process, which then ends the components in
    order."""
    log: IO[bytes]
    with _log_file(places, component).open("ab") as log:
        return subprocess.Popen(  # noqa: S603
            [_airflow_binary(places), component],
            env=env,
            cwd=places.work,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_until_healthy(
    places: Places, client: AirflowClient, processes: dict[str, subprocess.Popen[bytes]], patience_s: float
) -> None:
    """Return once Airflow is healthy. Raises AirflowStartError if a component ends, or after ``patience_s``."""
    deadline = time.monotonic() + patience_s
    while not client.healthy():
        ended = [name for name, process in processes.items() if process.poll() is not None]
        late = time.monotonic() > deadline
        if ended or late:
            name = ended[0] if ended else next(iter(processes))
            what = f"{name} ended" if ended else f"not healthy after {patience_s:.0f} s"
            tail = _log_file(places, name).read_text(errors="replace")[-2000:]
            raise AirflowStartError(f"Airflow: {what}; log {_log_file(places, name)}:\n{tail}")
        time.sleep(0.3)


class Supervisor:
    """A small service manager for the components. One of :data:`RESTARTED` that has ended is started again, at most
    ``restarts`` times within :data:`RESTARTS_COUNT_FOR_S`. Any other component that ends is an error."""

    def __init__(
        self,
        processes: dict[str, subprocess.Popen[bytes]],
        start: Callable[[str], subprocess.Popen[bytes]],
        log_of: Callable[[str], Path],
        restarts: int = 3,
    ) -> None:
        self._processes, self._start, self._log_of, self._restarts = processes, start, log_of, restarts
        self._restarted_at: list[float] = []
        self._lock = threading.Lock()

    def check(self) -> None:
        """Start the scheduler or the triggerer again if it has ended. Raises AirflowStartError, with the end of the
        log, if a component has ended that may not."""
        with self._lock:
            for name, process in list(self._processes.items()):
                if process.poll() is None:
                    continue
                now = time.monotonic()
                self._restarted_at = [at for at in self._restarted_at if now - at < RESTARTS_COUNT_FOR_S]
                if name not in RESTARTED or len(self._restarted_at) >= self._restarts:
                    tail = self._log_of(name).read_text(errors="replace")[-2000:]
                    raise AirflowStartError(f"Airflow: {name} ended; log {self._log_of(name)}:\n{tail}")
                self._restarted_at.append(now)
                print(f"Airflow's {name} ended and is started again; log {self._log_of(name)}", flush=True)
                self._processes[name] = self._start(name)


def stop(processes: dict[str, subprocess.Popen[bytes]], patience_s: float = STOP_AFTER_S) -> None:
    """Stop all processes. Each gets a SIGTERM of its own, because a signal to the process group hangs the scheduler.
    The API server is stopped last, because tasks report to it. After ``patience_s``, each process that is left is
    killed with its children."""
    families = {name: family(process.pid) for name, process in processes.items()}
    deadline = time.monotonic() + patience_s
    others = [name for name in processes if name != "api-server"]
    for batch in (others, [name for name in processes if name == "api-server"]):
        for name in batch:
            processes[name].terminate()
        for name in batch:
            try:
                processes[name].wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                families[name] += family(processes[name].pid)
    for member in itertools.chain.from_iterable(families.values()):
        kill(member)
    for process in processes.values():
        process.wait()
