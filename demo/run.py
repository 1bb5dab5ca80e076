"""``make demo``: seven days of flights through Airflow, a savepoint, a restore, a replay, and the proof."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from demo.airflow_client import FINISHED, AirflowClient, AirflowRequestError, Run
from demo.airflow_process import AirflowStartError, airflow, exclusive, free_ports, migrate
from demo.compare import Comparison, compare_all
from demo.places import Places, Ports, environment
from demo.prepare import raw_flights, write_days
from statelib.flows.opened import Checkpoint, open_checkpoint
from statelib.flows.wiring import deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState

AIRCRAFT, ROUTES = "aircraft_activity", "route_delays"
FIRST, LAST = "2013-01-01", "2013-01-07"
RESTORED, REPLAYED_FROM = "2013-01-04", "2013-01-05"
END = datetime(2013, 1, 8, tzinfo=UTC)
RUN_PATIENCE_S = 600.0

Say = Callable[[str], None]


class DemoError(RuntimeError):
    """The demonstration did not work out; the message says what and where to look."""


def main() -> int:
    """Exit status 0: every key of both pipelines equals the direct computation."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:5.0f} s] {text}", flush=True)

    places = Places()
    try:
        with exclusive(places):
            _prepare(places, say)
            with airflow(places, free_ports()) as running:
                running.client.wait_for_dags({f"{p}.{d}" for p in (AIRCRAFT, ROUTES) for d in _DAGS})
                say("Airflow is up; both pipelines run side by side")
                _run_stories(running.client, say)
            return _conclude(places, say)
    except (DemoError, AirflowStartError, AirflowRequestError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


_DAGS = ("checkpoint", "savepoint", "restore")


def _prepare(places: Places, say: Say) -> None:
    """Start from nothing but the flights; Airflow's database is made meanwhile."""
    for path in (places.airflow, places.state, places.docs, places.scratch):
        shutil.rmtree(path, ignore_errors=True)
    for path in places.work.glob(f"{places.catalog.name}*"):
        path.unlink()
    places.make_directories()
    with ThreadPoolExecutor(1) as pool:
        migration = pool.submit(migrate, places)
        flights = raw_flights()
        days = write_days(flights, places.data / "flights")
        say(f"{flights.height:,} flights in {places.data / 'flights'}, one Parquet directory for each of {days} days")
        migration.result()


def _run_stories(client: AirflowClient, say: Say) -> None:
    with ThreadPoolExecutor(2) as pool:
        aircraft = pool.submit(_aircraft_story, Story(client, say, AIRCRAFT))
        routes = pool.submit(Story(client, say, ROUTES).days, FIRST, 7)
        aircraft.result()
        routes.result()


def _aircraft_story(story: "Story") -> None:
    """Seven days, a savepoint, back to the fourth day on three subtasks, and the rest once more."""
    ids = story.days(FIRST, 7)
    saved = story.triggered("savepoint", {"format": "canonical", "note": "before the restore"})
    facts = story.client.xcom(saved, "register")
    story.say(f"{AIRCRAFT}: savepoint {facts['id']} written in {saved.seconds:.1f} s")
    goal = str(ids[RESTORED])
    restored = story.triggered("restore", {"checkpoint": goal, "parallelism": 3})
    story.say(f"{AIRCRAFT}: restored to checkpoint {goal} ({RESTORED}), 2 -> 3 subtasks, in {restored.seconds:.1f} s")
    story.replay(REPLAYED_FROM)


@dataclass(frozen=True)
class Story:
    """What happens to one pipeline, told line by line."""

    client: AirflowClient
    say: Say
    pipeline: str

    def days(self, first: str, count: int) -> dict[str, int]:
        """Backfill ``count`` days until LAST, telling as each ends. Returns the checkpoint id of each day."""
        dag_id = f"{self.pipeline}.checkpoint"
        before = {(run.run_id, run.began) for run in self.client.runs(dag_id)}
        self.client.backfill(dag_id, first, LAST)
        ids: dict[str, int] = {}
        deadline = time.monotonic() + RUN_PATIENCE_S
        while len(ids) < count:
            if time.monotonic() > deadline:
                raise DemoError(f"{dag_id}: {len(ids)} of {count} runs ended after {RUN_PATIENCE_S:.0f} s")
            time.sleep(0.5)
            for run in self.client.runs(dag_id):
                if run.state in FINISHED and (run.run_id, run.began) not in before:
                    before.add((run.run_id, run.began))
                    day = str(run.start.date()) if run.start else run.run_id
                    ids[day] = self._told(run, f"{day} applied")
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


def _conclude(places: Places, say: Say) -> int:
    env = environment(places, Ports())
    here = deployment(env)
    catalog = here.catalog()
    found: dict[str, Checkpoint] = {}
    for pipeline in (AIRCRAFT, ROUTES):
        name = PipelineName(pipeline)
        head = catalog.head(name).head
        if head is None:
            raise DemoError(f"pipeline {pipeline} has no completed checkpoint")
        found[pipeline] = open_checkpoint(catalog.get(name, head).directory, storage_root=here.storage_root)
    say("comparing with polars over the raw flights")
    comparisons = compare_all(raw_flights(), END, found)
    completed = [r for r in catalog.list(None) if r.state is CheckpointState.COMPLETED]
    command = [sys.executable, "-m", "statelib", "checkpoints", "list"]
    subprocess.run(command, env={**env, "COLUMNS": "160"}, check=False)  # noqa: S603
    _print_end(places, comparisons, sorted(completed, key=lambda r: r.completed_at_ms or 0))
    return 1 if any(c.different for c in comparisons) else 0


def _print_end(places: Places, comparisons: list[Comparison], completed: list[CheckpointRecord]) -> None:
    newest = completed[-1]
    savepoints = sum(r.kind is SnapshotKind.SAVEPOINT for r in completed)
    print(f"\nThe quality report of each checkpoint lies under {places.docs}; the newest:\n  {newest.report}")
    print("What to open next:")
    print("  make up                                        these runs in Airflow's UI, and new ones")
    print(f"  .work/venv/bin/statelib checkpoints show {newest.pipeline}/{newest.checkpoint_id}")
    print(f"  .work/venv/bin/statelib inspect {newest.directory}\n")
    print(f"{len(completed) - savepoints} checkpoints and {savepoints} savepoint are registered.")
    for result in comparisons:
        if result.different:
            print(f"DIFFERENT  {result.what}: {result.different:,} of {result.keys:,} keys")
            print("\n".join(f"           {example}" for example in result.examples))
        else:
            print(f"EQUAL      {result.what}: all {result.keys:,} keys equal the direct computation")


if __name__ == "__main__":
    sys.exit(main())
