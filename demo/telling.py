"""What happens to the demonstration's pipelines, told line by line, and the proof at its end."""

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
from statelib.flows.wiring import Deployment, deployment
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
    """The demonstration did not work out; the message says what and where to look."""


def teller() -> Say:
    """Prints each line with the seconds since now in front of it."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:5.0f} s] {text}", flush=True)

    return say


@dataclass(frozen=True)
class Story:
    """What happens to one pipeline, told line by line."""

    client: AirflowClient
    say: Say
    pipeline: str

    def days(self, first: str, count: int, last: str, at_once: int = 1) -> dict[str, int]:
        """Backfill ``count`` days until ``last``, telling as each ends; Airflow starts
        ``at_once`` runs side by side. Returns the checkpoint id of each day."""
        dag_id = f"{self.pipeline}.checkpoint"
        before = {(run.run_id, run.began) for run in self.client.runs(dag_id)}
        self.client.backfill(dag_id, first, last, at_once)
        ids: dict[str, int] = {}
        deadline = time.monotonic() + RUN_PATIENCE_S
        while len(ids) < count:
            if time.monotonic() > deadline:
                raise DemoError(f"{dag_id}: {len(ids)} of {count} runs ended, the last {RUN_PATIENCE_S:.0f} s ago")
            time.sleep(0.5)
            for run in self.client.runs(dag_id):
                if run.state in FINISHED and (run.run_id, run.began) not in before:
                    before.add((run.run_id, run.began))
                    day = str(run.start.date()) if run.start else run.run_id
                    ids[day] = self._told(run, f"{day} applied")
                    deadline = time.monotonic() + RUN_PATIENCE_S
        return ids

    def replay(self, first: str) -> None:
        """Clear the runs from day ``first`` on, one after the other: their intervals are applied anew."""
        dag_id = f"{self.pipeline}.checkpoint"
        for run in self.client.runs(dag_id):
            if run.start and str(run.start.date()) >= first:
                self.client.clear(dag_id, run.run_id)
                replayed = self.client.wait_for_run(dag_id, run.run_id, RUN_PATIENCE_S)
                self._told(replayed, f"{run.start.date()} replayed")

    def triggered(self, what: str, conf: dict[str, object]) -> Run:
        """One run by hand, awaited."""
        dag_id = f"{self.pipeline}.{what}"
        run = self.client.wait_for_run(dag_id, self.client.trigger(dag_id, conf), RUN_PATIENCE_S)
        self._check(run)
        return run

    def _told(self, run: Run, what: str) -> int:
        self._check(run)
        facts = self.client.xcom(run, "register")
        self.say(f"{self.pipeline}: {what}, checkpoint {facts['id']}, {facts['keys']:,} entries, {run.seconds:.1f} s")
        return int(facts["id"])

    def _check(self, run: Run) -> None:
        if run.state != "success":
            raise DemoError(f"{run.dag_id} {run.run_id} ended as {run.state}; {self.client.failed_log(run)}")


@contextmanager
def side_by_side(client: AirflowClient) -> Iterator[ThreadPoolExecutor]:
    """Threads for two stories. What ends the block early, Ctrl-C too, ends them as well."""
    with ThreadPoolExecutor(2) as pool:
        try:
            yield pool
        except BaseException:
            client.stop()
            raise


def here_of(places: Places) -> Deployment:
    """The deployment of these places, for this very process, which gets their settings."""
    env = environment(places, Ports())
    os.environ.update({name: env[name] for name in places.settings})
    return deployment(env)


def compared(here: Deployment, end: datetime) -> list[Comparison]:
    """Both pipelines' heads against polars over the raw flights that were scheduled before ``end``."""
    catalog = here.catalog()
    found: dict[str, Checkpoint] = {}
    for pipeline in (AIRCRAFT, ROUTES):
        name = PipelineName(pipeline)
        head = catalog.head(name).head
        if head is None:
            raise DemoError(f"pipeline {pipeline} has no completed checkpoint")
        found[pipeline] = open_checkpoint(catalog.get(name, head).directory, storage_root=here.storage_root)
    return compare_all(raw_flights(), end, found)


def statelib(places: Places, *words: str) -> int:
    """The command line, as its user would call it; its exit status."""
    env = {**environment(places, Ports()), "COLUMNS": "160"}
    return subprocess.run([sys.executable, "-m", "statelib", *words], env=env, check=False).returncode  # noqa: S603


def print_comparisons(comparisons: list[Comparison]) -> None:
    for result in comparisons:
        if result.different:
            print(f"DIFFERENT  {result.what}: {result.different:,} of {result.keys:,} keys")
            print("\n".join(f"           {example}" for example in result.examples))
        else:
            print(f"EQUAL      {result.what}: all {result.keys:,} keys equal the direct computation")
