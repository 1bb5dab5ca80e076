"""``make story``: a backfill with one poisoned day; back to the day before, the day mended, the rest replayed; exact.

Nobody notices when it happens: the day's file was delivered twice, with other delays in it the second time. It is
found afterwards, when the state is compared with the source. ``--days`` and ``--poisoned`` say how long the story is:
every day costs a Spark run of 15 to 45 seconds, and every day from the poisoned one on costs another.
"""

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from demo.airflow_client import AirflowClient, AirflowRequestError, Run
from demo.airflow_process import AirflowStartError, airflow, exclusive, free_ports, migrate
from demo.compare import Comparison, aircraft_expected, aircraft_found, difference
from demo.places import Places
from demo.prepare import raw_flights, write_days
from demo.telling import AIRCRAFT, RUN_PATIENCE_S, DemoError, Story
from statelib.flows.wiring import Deployment, deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState
from statelib.savepoints.opened import open_checkpoint

START = datetime(2013, 1, 1, tzinfo=UTC)
PROCESS_ENDS_S = 5
"""How long after a task waits for its answer its process may end."""


@dataclass(frozen=True)
class Poison:
    """A day whose file holds what never happened. The true file lies beside the source meanwhile."""

    directory: Path

    @property
    def _kept(self) -> Path:
        return self.directory.with_name(f"_true_{self.directory.name}")

    def spread(self) -> None:
        file = self.directory / "flights.parquet"
        true = pl.read_parquet(file)
        self._kept.mkdir(exist_ok=True)
        shutil.move(file, self._kept / file.name)
        again = true.with_columns(pl.col("dep_delay") + 60, pl.col("arr_delay") + 60)
        pl.concat([true, again]).write_parquet(file)

    def mend(self) -> None:
        shutil.move(self._kept / "flights.parquet", self.directory / "flights.parquet")
        self._kept.rmdir()


@dataclass(frozen=True)
class Told:
    """How it went: the state before and after, the plan that was approved, and the restore's run."""

    before: Comparison
    after: Comparison
    plan: str
    restored: Run
    ids: Mapping[str, int]


def day_of(number: int) -> str:
    """The date of day ``number`` of the story, from 1."""
    return str((START + timedelta(days=number - 1)).date())


def tell(story: Story, here: Deployment, flights: pl.DataFrame, *, days: int, poisoned: int, at_once: int = 1) -> Told:
    """The whole story on a running Airflow, whose source holds the days; ``poisoned`` is one of 2 to ``days``."""
    poison = Poison(Path(here.data) / "flights" / day_of(poisoned))
    poison.spread()
    seen = flights.filter(pl.col("time_hour") < START + timedelta(days=days))
    ids = story.days(day_of(1), days, day_of(days), at_once)
    before = compared(here, seen)
    story.say(f"{before.different:,} of {before.keys:,} keys are wrong: the file of {day_of(poisoned)} was poisoned")
    conf = {"checkpoint": str(ids[day_of(poisoned - 1)]), "approval": True, "replay": True}
    dag_id = f"{AIRCRAFT}.restore"
    run = story.client.run(dag_id, story.client.trigger(dag_id, conf))
    plan = asked(story.client, run)["body"]
    story.say(f"the restore asks before it acts:\n{plan}")
    poison.mend()
    story.client.answer(run, "approve", "Approve")
    patience_s = RUN_PATIENCE_S * (days - poisoned + 2)
    restored = story.client.wait_for_run(dag_id, run.run_id, patience_s, progress(story, here))
    if restored.state != "success":
        raise DemoError(f"{dag_id} ended as {restored.state}; {story.client.failed_log(restored)}")
    after = compared(here, seen)
    replayed = days - poisoned + 1
    story.say(f"restored and {replayed} days replayed: {after.different:,} of {after.keys:,} keys are wrong")
    return Told(before, after, plan, restored, ids)


def progress(story: Story, here: Deployment) -> Callable[[], None]:
    """Says, whenever it is called, which days were applied since the last time."""
    catalog, name = here.catalog(), PipelineName(AIRCRAFT)
    known = {record.checkpoint_id for record in catalog.list(name)}

    def look() -> None:
        for record in catalog.list(name):
            if record.state is CheckpointState.COMPLETED and record.checkpoint_id not in known and record.interval:
                known.add(record.checkpoint_id)
                day = datetime.fromtimestamp(record.interval.start_ms / 1000, UTC).date()
                story.say(f"{name}: {day} applied again, checkpoint {record.checkpoint_id}, {record.entries:,} entries")

    return look


def compared(here: Deployment, seen: pl.DataFrame) -> Comparison:
    """The pipeline's present state against polars over the true flights."""
    catalog, name = here.catalog(), PipelineName(AIRCRAFT)
    head = catalog.head(name).head
    if head is None:
        raise DemoError(f"pipeline {name} has no completed checkpoint")
    found = aircraft_found(open_checkpoint(catalog.get(name, head).directory, storage_root=here.storage_root))
    return difference(AIRCRAFT, aircraft_expected(seen), found, ["tailnum"])


def asked(client: AirflowClient, run: Run) -> dict[str, Any]:
    """The question, once Airflow is ready for the answer: the task waits, and the scheduler has heard that its process
    ended. It takes a process that ends after the answer for one that failed to run the task."""
    deadline = time.monotonic() + RUN_PATIENCE_S
    while client.task_states(run.dag_id, run.run_id).get("approve") != "awaiting_input":
        now = client.run(run.dag_id, run.run_id)
        if now.state == "failed" or time.monotonic() > deadline:
            raise DemoError(f"{run.dag_id} is {now.state} and asks nothing; {client.failed_log(now)}")
        time.sleep(0.5)
    client.wait_for_scheduler(datetime.now(UTC) + timedelta(seconds=PROCESS_ENDS_S), RUN_PATIENCE_S)
    return client.question(run, "approve")


def main() -> int:
    """Exit status 0: every key equals the direct computation over the true flights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30, help="how many days are applied")
    parser.add_argument("--poisoned", type=int, default=20, help="which of them is poisoned, from 2")
    options = parser.parse_args()
    if not 2 <= options.poisoned <= options.days <= 365:
        parser.error("expected 2 <= --poisoned <= --days <= 365")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:5.0f} s] {text}", flush=True)

    places = Places(work=Places().work / "story")
    try:
        with exclusive(places):
            flights = _prepare(places)
            with airflow(places, free_ports()) as running:
                running.client.wait_for_dags({f"{AIRCRAFT}.checkpoint", f"{AIRCRAFT}.restore"})
                story = Story(running.client, say, AIRCRAFT)
                told = tell(
                    story, deployment(running.environment), flights, days=options.days, poisoned=options.poisoned
                )
    except (DemoError, AirflowStartError, AirflowRequestError) as error:
        print(f"\nThe story failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"EQUAL  all {told.after.keys:,} keys" if not told.after.different else "\n".join(told.after.examples))
    return 1 if told.after.different or not told.before.different else 0


def _prepare(places: Places) -> pl.DataFrame:
    """An empty deployment of its own, beside the demo's."""
    for path in (places.airflow, places.state, places.docs, places.scratch, places.data):
        shutil.rmtree(path, ignore_errors=True)
    for path in places.work.glob(f"{places.catalog.name}*"):
        path.unlink()
    migrate(places)
    flights = raw_flights()
    write_days(flights, places.data / "flights")
    return flights


if __name__ == "__main__":
    sys.exit(main())
