"""``make cluster``: the demonstration on PostgreSQL, S3 and a standalone Spark, one worker of which is killed while
it writes a checkpoint. Pipelines, DAGs and code are those of ``make demo``; only settings differ."""

import argparse
import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from demo.airflow_client import AirflowClient, AirflowRequestError
from demo.airflow_process import COMPONENTS, AirflowStartError, RunningAirflow, airflow, exclusive, free_ports, migrate
from demo.places import CHECKOUT, Places, Ports, statelib_settings
from demo.prepare import raw_flights, write_days
from demo.processes import ended_once
from demo.spark_cluster import HOSTS, SparkClusterError
from demo.telling import (
    AIRCRAFT,
    DAGS,
    FIRST,
    ROUTES,
    DemoError,
    Say,
    Story,
    compared,
    here_of,
    print_comparisons,
    side_by_side,
    statelib,
    teller,
)
from demo.topology import Topology, TopologyError, topology
from tests.support.postgresql_server import NoServer

LAST, END = "2013-01-03", datetime(2013, 1, 4, tzinfo=UTC)
KILLED_IN = 2
"""The checkpoint during which a worker dies."""
VICTIM = HOSTS[1]
NOTHING_LEAKED = "SECRET     in no file, command line or answer of Airflow"


def main() -> int:
    """Exit status 0: the killed worker was made up for, everything verifies and equals the direct computation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stay", action="store_true", help="leave it all running afterwards, until Ctrl-C")
    parser.add_argument("--port", type=int, default=8080, help="of Airflow's UI with --stay, on 127.0.0.1")
    arguments = parser.parse_args()
    say, places = teller(), Places(work=CHECKOUT / ".work" / "cluster")
    try:
        with ended_once(), exclusive(places):
            _clear(places)
            with topology(places) as running:
                say(f"PostgreSQL, S3 and Spark with workers on {' and '.join(HOSTS)} are up")
                _prepare(running.places, say)
                with _airflow(running.places, arguments.port if arguments.stay else None) as started:
                    _run(running, started, say)
                    status = _conclude(running, started.client, say)
                    if arguments.stay:
                        _stay(running, started)
            return status
    except (DemoError, AirflowStartError, AirflowRequestError, SparkClusterError, TopologyError, NoServer) as error:
        print(f"\nThe cluster demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def _clear(places: Places) -> None:
    for path in (places.airflow, places.docs, places.scratch, places.work / "spark"):
        shutil.rmtree(path, ignore_errors=True)
    _settings_file(places).unlink(missing_ok=True)


def _settings_file(places: Places) -> Path:
    """For a shell, while the cluster stays."""
    return places.work / "environment"


def _prepare(places: Places, say: Say) -> None:
    with ThreadPoolExecutor(1) as pool:
        migration = pool.submit(migrate, places)
        days = write_days(raw_flights(), places.data / "flights")
        migration.result()
    say(f"the flights of {days} days are written, Airflow's database and the catalog are made in PostgreSQL")


@contextmanager
def _airflow(places: Places, port: int | None) -> Iterator[RunningAirflow]:
    """``port`` None: any, and without the triggerer, which only people need here."""
    free = free_ports()
    ports = free if port is None else Ports(port, free.worker_logs, free.trigger_logs)
    with airflow(places, ports, COMPONENTS if port is None else (*COMPONENTS, "triggerer")) as started:
        yield started


def _run(running: Topology, started: RunningAirflow, say: Say) -> None:
    """Three days of both pipelines side by side. While both subtasks of the second day upload, a worker dies."""
    started.client.wait_for_dags(set(DAGS))
    say("Airflow is up on PostgreSQL; both pipelines run side by side")
    here = here_of(running.places)
    with side_by_side(started.client) as pool:
        stories = [pool.submit(Story(started.client, say, name).days, FIRST, 3, LAST) for name in (AIRCRAFT, ROUTES)]
        with running.uploading(here, AIRCRAFT, KILLED_IN, lambda: _check(stories)) as uploads:
            killed = running.spark.kill_worker(VICTIM)
            say(f"{AIRCRAFT}: checkpoint {KILLED_IN} is being uploaded ({len(uploads)} files under way)")
            say(f"killed the worker on {VICTIM}: SIGKILL to {killed} processes; left are {running.spark.workers()}")
        for story in stories:
            story.result()
    running.spark.start_worker(VICTIM)
    running.spark.wait_for_workers(len(HOSTS))


def _check(stories: list[Future[dict[str, int]]]) -> None:
    """Raises what a story raised: nobody waits for what cannot come any more."""
    for story in stories:
        if story.done():
            story.result()


def _conclude(running: Topology, client: AirflowClient, say: Say) -> int:
    places = running.places
    say("verifying every checkpoint, comparing with polars over the raw flights")
    comparisons = compared(here_of(places), END)
    statelib(places, "checkpoints", "list")
    whole = statelib(places, "verify") == 0
    swept = statelib(places, "orphans", "--delete") == 0
    leaks = running.leaks() + _shown(client, running.secrets)
    print_comparisons(comparisons)
    print("WHOLE      statelib verify: every file of every checkpoint" if whole else "BROKEN     statelib verify")
    print("\n".join(f"LEAKED     a secret, in {leak}" for leak in leaks) or NOTHING_LEAKED)
    return 0 if whole and swept and not leaks and not any(c.different for c in comparisons) else 1


def _shown(client: AirflowClient, secrets: tuple[str, ...]) -> list[str]:
    """What Airflow's API shows a secret in: configuration, connections, and the rendered fields of tasks."""
    dag_id = f"{AIRCRAFT}.checkpoint"
    tasks = [f"/dags/{dag_id}/dagRuns/{quote(run.run_id)}/taskInstances" for run in client.runs(dag_id)]
    shown = []
    for path in ("/config", "/connections", "/connections/spark_default", "/variables", *tasks):
        try:
            answer = json.dumps(client.call("GET", path))
        except AirflowRequestError as refusal:
            answer = str(refusal)
        if any(secret in answer for secret in secrets):
            shown.append(path)
    return shown


def _stay(running: Topology, started: RunningAirflow) -> None:
    """Until Ctrl-C, the way to end it. Until then the settings lie in a file for the shell, for its user only."""
    file = _settings_file(running.places)
    _write_settings(file, running.places)
    print(f"\nAirflow: {started.url}   Spark: {running.spark.page}   (no login; Ctrl-C stops everything)")
    print(f"statelib: (set -a; . {file}; .work/venv/bin/statelib checkpoints list)", flush=True)
    try:
        while True:
            time.sleep(1)
            started.client.check()
            running.spark.check()
    except KeyboardInterrupt:
        print("\nStopping ...", flush=True)
    finally:
        file.unlink()


def _write_settings(file: Path, places: Places) -> None:
    settings = {**statelib_settings(places), **places.settings}
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items()))


if __name__ == "__main__":
    sys.exit(main())
