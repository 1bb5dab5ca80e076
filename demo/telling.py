"""The steps that the demonstrations run on a pipeline, printed line by line, and the comparison at the end."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from demo.airflow_client import FINISHED, AirflowClient, Run
from demo.compare import Comparison, compare_all
from demo.places import Places, Ports, environment
from demo.prepare import raw_flights
from statelib.flows import wiring
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.savepoints.opened import Checkpoint, open_checkpoint

AIRCRAFT, ROUTES = "aircraft_activity", "route_delays"
DAGS = frozenset(
    f"{pipeline}.{dag}" for pipeline in (AIRCRAFT, ROUTES) for dag in ("checkpoint", "savepoint", "restore")
)
FIRST = "2013-01-01"
RUN_PATIENCE_S = 600.0

Say = Callable[[str], None]


class DemoError(RuntimeError):
    """The demonstration failed. The message names what failed and where to look."""


def timed_printer() -> Say:
    """Return a function that prints a line after the seconds since this call."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:5.0f} s] {text}", flush=True)

    return say


@dataclass(frozen=True)
class Story:
    """Runs of the DAGs of one pipeline. A line is printed as each run ends."""

    client: AirflowClient
    say: Say
    pipeline: str

    def days(self, first: str, count: int, last: str, at_once: int = 1) -> dict[str, int]:
        """Backfill the ``count`` days from ``first`` to ``last``, print a line as each ends, and return the checkpoint
        id of each day. Airflow starts up to ``at_once`` runs side by side. Raises DemoError if a run fails."""
        dag_id = f"{self.pipeline}.checkpoint"
        seen = {(run.run_id, run.began) for run in self.client.runs(dag_id)}
        self.client.backfill(dag_id, first, last, at_once)
        ids: dict[str, int] = {}
        deadline = time.monotonic() + RUN_PATIENCE_S
        while len(ids) < count:
            if time.monotonic() > deadline:
                raise DemoError(f"{dag_id}: {len(ids)} of {count} runs ended, the last {RUN_PATIENCE_S:.0f} s ago")
            time.sleep(0.5)
            for run in self.client.runs(dag_id):
                if run.state in FINISHED and (run.run_id, run.began) not in seen:
                    seen.add((run.run_id, run.began))
                    day = str(run.start.date()) if run.start else run.run_id
                    ids[day] = self._report(run, f"{day} applied")
                    deadline = time.monotonic() + RUN_PATIENCE_S
        return ids

    def replay(self, first: str) -> None:
        """Clear the runs from day ``first`` on, one after the other, so that their intervals are applied again."""
        dag_id = f"{self.pipeline}.checkpoint"
        for run in self.client.runs(dag_id):
            if run.start and str(run.start.date()) >= first:
                self.client.clear(dag_id, run.run_id)
                replayed = self.client.wait_for_run(dag_id, run.run_id, RUN_PATIENCE_S)
                self._report(replayed, f"{run.start.date()} replayed")

    def triggered(self, what: str, conf: dict[str, object]) -> Run:
        """Trigger one run, wait for its end and return it. ``what``: the DAG, without the name of the pipeline. Raises
        DemoError if the run fails."""
        dag_id = f"{self.pipeline}.{what}"
        run = self.client.wait_for_run(dag_id, self.client.trigger(dag_id, conf), RUN_PATIENCE_S)
        self._check(run)
        return run

    def _report(self, run: Run, what: str) -> int:
        """Print a line about the checkpoint of a run, and return its id. Raises DemoError if the run failed."""
        self._check(run)
        facts = self.client.xcom(run, "register")
        number, entries = int(facts["id"]), int(facts["entries"])
        self.say(f"{self.pipeline}: {what}, checkpoint {number}, {entries:,} entries, {run.seconds:.1f} s")
        return number

    def _check(self, run: Run) -> None:
        """Raise DemoError, with the log of the failed task, unless the run succeeded."""
        if run.state != "success":
            raise DemoError(f"{run.dag_id} {run.run_id} ended as {run.state}; {self.client.failed_log(run)}")


@contextmanager
def side_by_side(client: AirflowClient) -> Iterator[ThreadPoolExecutor]:
    """Yield threads for two stories. An exception that ends the block early, such as that of Ctrl-C, stops the client,
    and so ends the stories."""
    with ThreadPoolExecutor(2) as pool:
        try:
            yield pool
        except BaseException:
            client.stop()
            raise


def deployment_of(places: Places) -> Deployment:
    """Return the deployment of these places. Their settings are added to the environment of this process."""
    env = environment(places, Ports())
    os.environ.update({name: env[name] for name in places.settings})
    return wiring.deployment(env)


def compare_heads(deployment: Deployment, end: datetime) -> list[Comparison]:
    """Compare the current state of both pipelines with what polars computes from the flights that were scheduled before
    ``end``. Raises DemoError if a pipeline has none."""
    catalog = deployment.catalog()
    checkpoints: dict[str, Checkpoint] = {}
    for pipeline in (AIRCRAFT, ROUTES):
        name = PipelineName(pipeline)
        head = catalog.head(name).head
        if head is None:
            raise DemoError(f"pipeline {pipeline} has no completed checkpoint")
        checkpoints[pipeline] = open_checkpoint(catalog.get(name, head).directory, storage_root=deployment.storage_root)
    return compare_all(raw_flights(), end, checkpoints)


def statelib(places: Places, *words: str) -> int:
    """Run the command line as a user does, and return its exit status."""
    env = {**environment(places, Ports()), "COLUMNS": "160"}
    return subprocess.run([sys.executable, "-m", "statelib", *words], env=env, check=False).returncode  # noqa: S603


def print_comparisons(comparisons: list[Comparison]) -> None:
    """Print a line per comparison, followed by examples of the entries that differ."""
    for result in comparisons:
        if result.different:
            print(f"DIFFERENT  {result.what}: {result.different:,} of {result.entries:,} entries")
            print("\n".join(f"           {example}" for example in result.examples))
        else:
            print(f"EQUAL      {result.what}: all {result.entries:,} entries equal the direct computation")
