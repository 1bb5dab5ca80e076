"""``make story``: a backfill that contains one poisoned day, a restore of the day before, and a replay of the rest.

The file of one day contains every flight twice, the second time with other delays. No run fails: the error shows only
when the state is compared with the source. The pipeline is restored to the day before, the file is replaced by the true
one, and the days from there on are replayed. At the end the state equals the direct computation. ``--days`` and
``--poisoned`` set the length of the story: each day costs a Spark run of 15 to 45 seconds, and each day from the
poisoned one on costs another.
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
from demo.telling import AIRCRAFT, RUN_PATIENCE_S, DemoError, Story, timed_printer
from statelib.flows import wiring
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState
from statelib.savepoints.opened import open_checkpoint

START = datetime(2013, 1, 1, tzinfo=UTC)
PROCESS_ENDS_S = 5
"""Time that the process of a task may take to end after the task has begun to wait for its answer."""


@dataclass(frozen=True)
class Poison:
    """A day whose file has wrong events. While it does, the true file is in a directory beside the source."""

    directory: Path

    @property
    def _true_directory(self) -> Path:
        return self.directory.with_name(f"_true_{self.directory.name}")

    def spread(self) -> None:
        """Replace the file of the day by one with every flight twice, the second time with delays 60 minutes longer."""
        file = self.directory / "flights.parquet"
        flights = pl.read_parquet(file)
        self._true_directory.mkdir(exist_ok=True)
        shutil.move(file, self._true_directory / file.name)
        delayed = flights.with_columns(pl.col("dep_delay") + 60, pl.col("arr_delay") + 60)
        pl.concat([flights, delayed]).write_parquet(file)

    def mend(self) -> None:
        """Put the true file back."""
        shutil.move(self._true_directory / "flights.parquet", self.directory / "flights.parquet")
        self._true_directory.rmdir()


@dataclass(frozen=True)
class Outcome:
    """The result of the story: the comparison of the state before and after the restore, the plan that was approved,
    the run of the restore, and the checkpoint id of each day of the backfill."""

    before: Comparison
    after: Comparison
    plan: str
    restored: Run
    ids: Mapping[str, int]


def day_of(number: int) -> str:
    """Return the date of day ``number`` of the story, counted from 1."""
    return str((START + timedelta(days=number - 1)).date())


def tell(
    story: Story, deployment: Deployment, flights: pl.DataFrame, *, days: int, poisoned: int, at_once: int = 1
) -> Outcome:
    """Run the whole story on a running Airflow and return the result. The source of the deployment must have the first
    ``days`` days of ``flights``; ``poisoned`` is a number from 2 to ``days``. Raises DemoError."""
    poison = Poison(Path(deployment.data) / "flights" / day_of(poisoned))
    poison.spread()
    applied = flights.filter(pl.col("time_hour") < START + timedelta(days=days))
    ids = story.days(day_of(1), days, day_of(days), at_once)
    before = compare_head(deployment, applied)
    wrong = f"{before.different:,} of {before.entries:,} entries are wrong"
    story.say(f"{wrong}: the file of {day_of(poisoned)} was poisoned")
    conf = {"checkpoint": str(ids[day_of(poisoned - 1)]), "approval": True, "replay": True}
    dag_id = f"{AIRCRAFT}.restore"
    run = story.client.run(dag_id, story.client.trigger(dag_id, conf))
    plan = asked(story.client, run)["body"]
    story.say(f"the restore waits for the approval of its plan:\n{plan}")
    poison.mend()
    story.client.answer(run, "approve", "Approve")
    patience_s = RUN_PATIENCE_S * (days - poisoned + 2)
    restored = story.client.wait_for_run(dag_id, run.run_id, patience_s, progress(story, deployment))
    if restored.state != "success":
        raise DemoError(f"{dag_id} ended as {restored.state}; {story.client.failed_log(restored)}")
    after = compare_head(deployment, applied)
    replayed = days - poisoned + 1
    story.say(f"restored and {replayed} days replayed: {after.different:,} of {after.entries:,} entries are wrong")
    return Outcome(before, after, plan, restored, ids)


def progress(story: Story, deployment: Deployment) -> Callable[[], None]:
    """Return a function that, at each call, prints the days that were applied since the last call."""
    catalog, name = deployment.catalog(), PipelineName(AIRCRAFT)
    printed = {record.checkpoint_id for record in catalog.list(name)}

    def print_new() -> None:
        for record in catalog.list(name):
            if record.state is CheckpointState.COMPLETED and record.checkpoint_id not in printed and record.interval:
                printed.add(record.checkpoint_id)
                day = datetime.fromtimestamp(record.interval.start_ms / 1000, UTC).date()
                story.say(f"{name}: {day} applied again, checkpoint {record.checkpoint_id}, {record.entries:,} entries")

    return print_new


def compare_head(deployment: Deployment, flights: pl.DataFrame) -> Comparison:
    """Compare the current state of the pipeline with what polars computes from ``flights``. Raises DemoError if there
    is none."""
    catalog, name = deployment.catalog(), PipelineName(AIRCRAFT)
    head = catalog.head(name).head
    if head is None:
        raise DemoError(f"pipeline {name} has no completed checkpoint")
    actual = aircraft_found(open_checkpoint(catalog.get(name, head).directory, storage_root=deployment.storage_root))
    return difference(AIRCRAFT, aircraft_expected(flights), actual, ["tailnum"])


def asked(client: AirflowClient, run: Run) -> dict[str, Any]:
    """Return the question of the ``approve`` task once Airflow is ready for the answer: the task waits, and the
    scheduler has processed the end of its process. If the answer came before that end, the scheduler would take the
    task for failed. Raises DemoError if the run fails first, or when that takes too long."""
    deadline = time.monotonic() + RUN_PATIENCE_S
    while client.task_states(run.dag_id, run.run_id).get("approve") != "awaiting_input":
        current = client.run(run.dag_id, run.run_id)
        if current.state == "failed" or time.monotonic() > deadline:
            log = client.failed_log(current)
            raise DemoError(f"{run.dag_id} is {current.state} and does not wait for an approval; {log}")
        time.sleep(0.5)
    client.wait_for_scheduler(datetime.now(UTC) + timedelta(seconds=PROCESS_ENDS_S), RUN_PATIENCE_S)
    return client.question(run, "approve")


def main() -> int:
    """Run the story and return the exit status. 0: the poison showed, and after the replay every key equals the direct
    computation from the true flights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30, help="how many days are applied")
    parser.add_argument("--poisoned", type=int, default=20, help="which of them is poisoned, from 2")
    options = parser.parse_args()
    if not 2 <= options.poisoned <= options.days <= 365:
        parser.error("expected 2 <= --poisoned <= --days <= 365")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    say, places = timed_printer(), Places(work=Places().work / "story")
    try:
        with exclusive(places):
            flights = _prepare(places)
            with airflow(places, free_ports()) as running:
                running.client.wait_for_dags({f"{AIRCRAFT}.checkpoint", f"{AIRCRAFT}.restore"})
                story = Story(running.client, say, AIRCRAFT)
                deployment = wiring.deployment(running.environment)
                outcome = tell(story, deployment, flights, days=options.days, poisoned=options.poisoned)
    except (DemoError, AirflowStartError, AirflowRequestError) as error:
        print(f"\nThe story failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    after = outcome.after
    print(f"EQUAL  all {after.entries:,} entries" if not after.different else "\n".join(after.examples))
    return 1 if after.different or not outcome.before.different else 0


def _prepare(places: Places) -> pl.DataFrame:
    """Make an empty deployment beside that of ``make demo``, write the flights, and return them."""
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
