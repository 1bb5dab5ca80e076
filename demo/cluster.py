"""``make cluster``: the demonstration on PostgreSQL, S3 and a standalone Spark. One worker is killed while it writes a
checkpoint. Pipelines, DAGs and code are the same as in ``make demo``; only settings differ."""

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
    compare_heads,
    deployment_of,
    print_comparisons,
    side_by_side,
    statelib,
    timed_printer,
)
from demo.topology import Topology, TopologyError, topology
from tests.support.postgresql_server import NoServer

LAST, END = "2013-01-03", datetime(2013, 1, 4, tzinfo=UTC)
KILLED_IN = 2
"""The id of the checkpoint during which the worker is killed."""
VICTIM = HOSTS[1]
NO_LEAK_LINE = "SECRET     in no file, command line or answer of Airflow"


def main() -> int:
    """Run the demonstration and return the exit status. 0: the runs succeeded although a worker was killed, every
    checkpoint verifies, no secret leaked, and the state equals the direct computation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stay", action="store_true", help="leave it all running afterwards, until Ctrl-C")
    parser.add_argument("--port", type=int, default=8080, help="of Airflow's UI with --stay, on 127.0.0.1")
    arguments = parser.parse_args()
    say, places = timed_printer(), Places(work=CHECKOUT / ".work" / "cluster")
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
    """Delete what an earlier run left, except the flights."""
    for path in (places.airflow, places.docs, places.scratch, places.work / "spark"):
        shutil.rmtree(path, ignore_errors=True)
    _settings_file(places).unlink(missing_ok=True)


def _settings_file(places: Places) -> Path:
    """Return the file of settings that a shell can read while the cluster stays."""
    return places.work / "environment"


def _prepare(places: Places, say: Say) -> None:
    """Write the flights, and meanwhile create the databases of Airflow and of the catalog."""
    with ThreadPoolExecutor(1) as pool:
        migration = pool.submit(migrate, places)
        days = write_days(raw_flights(), places.data / "flights")
        migration.result()
    say(f"the flights of {days} days are written, Airflow's database and the catalog are made in PostgreSQL")


@contextmanager
def _airflow(places: Places, port: int | None) -> Iterator[RunningAirflow]:
    """Start Airflow, and stop it when the block ends. If ``port`` is None, nobody uses the UI: the port is any free
    one, and the triggerer, which only a person at the UI needs, is left out."""
    free = free_ports()
    ports = free if port is None else Ports(port, free.worker_logs, free.trigger_logs)
    with airflow(places, ports, COMPONENTS if port is None else (*COMPONENTS, "triggerer")) as started:
        yield started


def _run(running: Topology, started: RunningAirflow, say: Say) -> None:
    """Run three days of both pipelines side by side. While both subtasks of the second day upload, kill a worker."""
    started.client.wait_for_dags(set(DAGS))
    say("Airflow is up on PostgreSQL; both pipelines run side by side")
    deployment = deployment_of(running.places)
    with side_by_side(started.client) as pool:
        stories = [pool.submit(Story(started.client, say, name).days, FIRST, 3, LAST) for name in (AIRCRAFT, ROUTES)]
        with running.uploading(deployment, AIRCRAFT, KILLED_IN, lambda: _check(stories)) as uploads:
            killed = running.spark.kill_worker(VICTIM)
            say(f"{AIRCRAFT}: checkpoint {KILLED_IN} is being uploaded ({len(uploads)} files under way)")
            say(f"killed the worker on {VICTIM}: SIGKILL to {killed} processes; left are {running.spark.workers()}")
        for story in stories:
            story.result()
    running.spark.start_worker(VICTIM)
    running.spark.wait_for_workers(len(HOSTS))


def _check(stories: list[Future[dict[str, int]]]) -> None:
    """Raise the error of a story that failed, so that nothing waits for its next checkpoint in vain."""
    for story in stories:
        if story.done():
            story.result()


def _conclude(running: Topology, client: AirflowClient, say: Say) -> int:
    """Verify every checkpoint, delete orphans, compare the state, look for leaked secrets; print the results and return
    the exit status."""
    places = running.places
    say("verifying every checkpoint, comparing with polars over the raw flights")
    comparisons = compare_heads(deployment_of(places), END)
    statelib(places, "checkpoints", "list")
    is_whole = statelib(places, "verify") == 0
    is_swept = statelib(places, "orphans", "--delete") == 0
    leaks = running.leaks() + _paths_with_secrets(client, running.secrets)
    print_comparisons(comparisons)
    print("WHOLE      statelib verify: every file of every checkpoint" if is_whole else "BROKEN     statelib verify")
    print("\n".join(f"LEAKED     a secret, in {leak}" for leak in leaks) or NO_LEAK_LINE)
    return 0 if is_whole and is_swept and not leaks and not any(c.different for c in comparisons) else 1


def _paths_with_secrets(client: AirflowClient, secrets: tuple[str, ...]) -> list[str]:
    """Return the paths of Airflow's API whose answer contains a secret. Configuration, connections, variables and the
    rendered fields of tasks are read."""
    dag_id = f"{AIRCRAFT}.checkpoint"
    tasks = [f"/dags/{dag_id}/dagRuns/{quote(run.run_id)}/taskInstances" for run in client.runs(dag_id)]
    paths = []
    for path in ("/config", "/connections", "/connections/spark_default", "/variables", *tasks):
        try:
            answer = json.dumps(client.call("GET", path))
        except AirflowRequestError as refusal:
            answer = str(refusal)
        if any(secret in answer for secret in secrets):
            paths.append(path)
    return paths


def _stay(running: Topology, started: RunningAirflow) -> None:
    """Leave everything running until Ctrl-C. Until then a file, readable only by its owner, has the settings for a
    shell."""
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
    """Write the settings as lines that a shell can source, readable only by the owner of the file."""
    settings = {**statelib_settings(places), **places.settings}
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items()))


if __name__ == "__main__":
    sys.exit(main())
