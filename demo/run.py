"""``make demo``: Airflow applies seven days of flights; then a savepoint, a restore, a replay, and a comparison."""

import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from demo.airflow_client import AirflowClient, AirflowRequestError
from demo.airflow_process import AirflowStartError, airflow, exclusive, free_ports, migrate
from demo.places import Places
from demo.prepare import raw_flights, write_days
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
from statelib.model.checkpoint import SnapshotKind
from statelib.model.record import CheckpointRecord, CheckpointState

LAST = "2013-01-07"
RESTORED, REPLAYED_FROM = "2013-01-04", "2013-01-05"
END = datetime(2013, 1, 8, tzinfo=UTC)


def main() -> int:
    """Run the demonstration and return the exit status. 0: every key of both pipelines equals the direct
    computation."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    say, places = timed_printer(), Places()
    try:
        with exclusive(places):
            _prepare(places, say)
            with airflow(places, free_ports()) as running:
                running.client.wait_for_dags(set(DAGS))
                say("Airflow is up; both pipelines run side by side")
                _run_stories(running.client, say)
            return _conclude(places, say)
    except (DemoError, AirflowStartError, AirflowRequestError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def _prepare(places: Places, say: Say) -> None:
    """Delete everything that an earlier run left but the flights, write the flights if they are missing, and meanwhile
    create the databases."""
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
    """Run the stories of both pipelines side by side."""
    with side_by_side(client) as pool:
        aircraft = pool.submit(_aircraft_story, Story(client, say, AIRCRAFT))
        routes = pool.submit(Story(client, say, ROUTES).days, FIRST, 7, LAST)
        aircraft.result()
        routes.result()


def _aircraft_story(story: Story) -> None:
    """Run seven days, write a savepoint, restore the fourth day with three subtasks, and replay the days after it."""
    ids = story.days(FIRST, 7, LAST)
    savepoint_run = story.triggered("savepoint", {"format": "canonical", "note": "before the restore"})
    facts = story.client.xcom(savepoint_run, "register")
    story.say(f"{AIRCRAFT}: savepoint {facts['id']} written in {savepoint_run.seconds:.1f} s")
    target = str(ids[RESTORED])
    restore_run = story.triggered("restore", {"checkpoint": target, "parallelism": 3})
    story.say(
        f"{AIRCRAFT}: restored to checkpoint {target} ({RESTORED}), 2 -> 3 subtasks, in {restore_run.seconds:.1f} s"
    )
    story.replay(REPLAYED_FROM)


def _conclude(places: Places, say: Say) -> int:
    """Compare both pipelines with the direct computation, print the results and return the exit status."""
    deployment = deployment_of(places)
    say("comparing with polars over the raw flights")
    comparisons = compare_heads(deployment, END)
    completed = [r for r in deployment.catalog().list(None) if r.state is CheckpointState.COMPLETED]
    statelib(places, "checkpoints", "list")
    _print_end(places, sorted(completed, key=lambda r: r.completed_at_ms or 0))
    print_comparisons(comparisons)
    return 1 if any(c.different for c in comparisons) else 0


def _print_end(places: Places, completed: list[CheckpointRecord]) -> None:
    """Print where the results are. ``completed``: all completed checkpoints and savepoints, oldest first."""
    newest = completed[-1]
    savepoints = sum(r.kind is SnapshotKind.SAVEPOINT for r in completed)
    print(f"\nThe quality report of each checkpoint lies under {places.docs}; the newest:\n  {newest.report}")
    print("What to open next:")
    print("  make up                                        these runs in Airflow's UI, and new ones")
    print(f"  .work/venv/bin/statelib checkpoints show {newest.pipeline}/{newest.checkpoint_id}")
    print(f"  .work/venv/bin/statelib inspect {newest.directory}\n")
    print(f"{len(completed) - savepoints} checkpoints and {savepoints} savepoint are registered.")


if __name__ == "__main__":
    sys.exit(main())
