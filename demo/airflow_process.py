"""Airflow's components as processes that are started together and stopped one by one."""

import fcntl
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from demo.airflow_client import AirflowClient
from demo.places import Places, Ports, environment

COMPONENTS = ("api-server", "scheduler", "dag-processor")
STOP_AFTER_S = 20.0


class AirflowStartError(RuntimeError):
    """A component ended, or did not become healthy in time; the message ends with its log's tail."""


@dataclass(frozen=True)
class RunningAirflow:
    client: AirflowClient
    url: str
    environment: dict[str, str]
    processes: dict[str, subprocess.Popen[bytes]]


def free_ports() -> Ports:
    """Three ports that nobody listens on right now."""
    sockets = [socket.socket() for _ in range(3)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return Ports(*(s.getsockname()[1] for s in sockets))
    finally:
        for s in sockets:
            s.close()


def migrate(places: Places) -> None:
    """Create Airflow's database, or bring it up to date. Takes about 5 s of CPU."""
    places.make_directories()
    command = [_airflow_binary(places), "db", "migrate"]
    env = environment(places, Ports())
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)  # noqa: S603
    (places.airflow / "migrate.log").write_bytes(done.stdout)
    if done.returncode:
        tail = done.stdout.decode(errors="replace")[-2000:]
        raise AirflowStartError(f"airflow db migrate ended with status {done.returncode}:\n{tail}")


@contextmanager
def exclusive(places: Places) -> Iterator[None]:
    """Only one Airflow at a time may run over a work folder."""
    places.airflow.mkdir(parents=True, exist_ok=True)
    with (places.work / "airflow.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AirflowStartError(
                f"another `make demo` or `make up` runs over {places.work}: stop it first"
            ) from None
        yield


@contextmanager
def airflow(
    places: Places, ports: Ports, components: Sequence[str] = COMPONENTS, patience_s: float = 120.0
) -> Iterator[RunningAirflow]:
    """A migrated Airflow, healthy when this yields; every process is gone when the block ends.

    Raises AirflowStartError. Logs of the components lie in ``<airflow>/<component>.log``.
    """
    env = environment(places, ports)
    url = f"http://127.0.0.1:{ports.api}"
    processes: dict[str, subprocess.Popen[bytes]] = {}
    client = AirflowClient(url, lambda: _check_alive(places, processes))
    try:
        for name in components:
            processes[name] = _start(places, name, env)
        _wait_until_healthy(places, client, processes, patience_s)
        yield RunningAirflow(client, url, env, processes)
    finally:
        stop(processes)


def _airflow_binary(places: Places) -> str:
    return str(Path(environment(places, Ports())["PATH"].split(os.pathsep)[0]) / "airflow")


def log_file(places: Places, component: str) -> Path:
    return places.airflow / f"{component}.log"


def _start(places: Places, component: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """In a session of its own, so that Ctrl-C reaches only us and we end the components in order."""
    log: IO[bytes]
    with log_file(places, component).open("wb") as log:
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
    deadline = time.monotonic() + patience_s
    while not client.healthy():
        ended = [name for name, process in processes.items() if process.poll() is not None]
        late = time.monotonic() > deadline
        if ended or late:
            name = ended[0] if ended else next(iter(processes))
            what = f"{name} ended" if ended else f"not healthy after {patience_s:.0f} s"
            tail = log_file(places, name).read_text(errors="replace")[-2000:]
            raise AirflowStartError(f"Airflow: {what}; log {log_file(places, name)}:\n{tail}")
        time.sleep(0.3)


def _check_alive(places: Places, processes: dict[str, subprocess.Popen[bytes]]) -> None:
    for name, process in processes.items():
        if process.poll() is not None:
            tail = log_file(places, name).read_text(errors="replace")[-2000:]
            raise AirflowStartError(f"Airflow: {name} ended; log {log_file(places, name)}:\n{tail}")


def stop(processes: dict[str, subprocess.Popen[bytes]], patience_s: float = STOP_AFTER_S) -> None:
    """SIGTERM to each process singly (a signal to the group hangs the scheduler); the API server goes
    last, because tasks report to it. What has not ended after ``patience_s`` is killed with its children."""
    known = {name: _family(process.pid) for name, process in processes.items()}
    deadline = time.monotonic() + patience_s
    others = [name for name in processes if name != "api-server"]
    for batch in (others, [name for name in processes if name == "api-server"]):
        for name in batch:
            processes[name].terminate()
        for name in batch:
            try:
                processes[name].wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                known[name] += _family(processes[name].pid)
    for member in (m for family in known.values() for m in family):
        _kill(member)
    for process in processes.values():
        process.wait()


def _family(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return []


def _kill(member: psutil.Process) -> None:
    """psutil compares start times, so that a reused process id is not hit."""
    try:
        if member.is_running() and member.status() != psutil.STATUS_ZOMBIE:
            member.kill()
    except psutil.NoSuchProcess:
        pass
