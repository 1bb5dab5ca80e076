"""A real Airflow (scheduler, PostgreSQL), real spark-submit: a driver killed, a run cleared, a file lost in between."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pytest
import yaml

from demo.airflow_client import AirflowClient, AirflowRequestError, Run
from demo.airflow_process import COMPONENTS, RunningAirflow, airflow, exclusive, free_ports, migrate
from demo.compare import aircraft_expected, aircraft_found, difference
from demo.places import Places
from statelib.flows import wiring
from statelib.flows.checkpoint.steps import abort, begin
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.lifecycle import suspension
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval, SnapshotKind
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState, Owner
from statelib.model.termination import StopMode
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import open_checkpoint
from tests.integration.airflow_filling import FILLER, FILLING, assert_a_run_waits, filling_file
from tests.integration.airflow_mending import MENDED, assert_a_day_is_mended, mendable_file, with_own_mend
from tests.integration.airflow_publishing import PUBLISH, assert_a_failed_publishing_is_made_up_for, assert_published
from tests.integration.airflow_reports import (
    Received,
    check_received,
    check_restored_and_saved,
    listening,
    report_what_registers,
)
from tests.integration.airflow_sources import BALANCES, assert_several_sources_are_applied, balances_file
from tests.integration.spark_drivers import driver
from tests.support.airflow_database import airflow_database
from tests.support.extent import large
from tests.support.worlds import CALM, publish_here

NAME, STREAKS, ROUTES = map(PipelineName, ("aircraft_activity", "carrier_streaks", "route_delays"))
"""One pipeline per test, so that they run in any order."""
MARKED = PipelineName("marked_failed")
"""A copy of :data:`ROUTES` whose checkpoints are read back by tasks of the Spark job."""
WAITING = PipelineName("waiting")
"""A copy of :data:`STREAKS` whose source has a rule for completeness, for example that :data:`UPSTREAM` has a new
state."""
UPSTREAM = PipelineName("upstream")
"""A copy of :data:`ROUTES` that never runs: only the test reports a new state of it."""
SENDER = PipelineName("sender")
"""A copy of :data:`ROUTES` that never runs: only the test reports new states of it."""
FED = PipelineName("fed")
"""A copy of :data:`STREAKS` whose runs the states of :data:`SENDER` start."""
DAG = f"{NAME}.checkpoint"
PATIENCE_S = 600.0
DAY_MS = 86_400_000
T = TypeVar("T")

pytestmark = pytest.mark.timeout(1800)


class World:
    """A running Airflow over a deployment of its own."""

    def __init__(self, places: Places, running: RunningAirflow, receivers: Received) -> None:
        self.received = receivers
        self.places = places
        self.client: AirflowClient = running.client
        self.deployment: Deployment = wiring.deployment(running.environment)

    def records(self, name: PipelineName = NAME) -> list[CheckpointRecord]:
        return sorted(self.deployment.catalog().list(name), key=lambda r: r.checkpoint_id)

    def completed(self) -> list[CheckpointRecord]:
        return [r for r in self.records() if r.state is CheckpointState.COMPLETED]

    def wait(self, day: str, dag: str = DAG) -> Run:
        """Wait until the run of a day has ended, and return it."""
        run = next(r for r in self.client.runs(dag) if r.start and str(r.start.date()) == day)
        return self.client.wait_for_run(dag, run.run_id, PATIENCE_S)

    def trigger(self, dag: str, conf: Mapping[str, Any]) -> Run:
        """Trigger a manual run, wait until it has ended, and return it."""
        return self.client.wait_for_run(dag, self.client.trigger(dag, conf), PATIENCE_S)

    def update(self, asset: PipelineName, dag: str, start: str, end: str) -> Run:
        """Report an update of a pipeline's state that names an interval, and return the run that it starts."""
        before = {run.run_id for run in self.client.runs(dag)}
        body = {"asset_id": asset_id(self.client, asset), "extra": {"start": start, "end": end}}
        self.client.call("POST", "/assets/events", body)
        return wait_for(lambda: next((r for r in self.client.runs(dag) if r.run_id not in before), None), "the run")

    def succeed(self, run: Run) -> Run:
        assert run.state == "success", self.client.failed_log(run)
        return run


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[World]:
    root = tmp_path_factory.mktemp("airflow")
    pipelines = root / "pipelines"
    pipelines.mkdir()
    places = Places(work=root / "work", pipelines=pipelines)
    for name in (NAME, STREAKS, ROUTES):
        text = (places.checkout / "dags" / "pipelines" / f"{name}.yaml").read_text()
        (pipelines / f"{name}.yaml").write_text(text.replace("delay_s: 10", "delay_s: 1"))
    routes = (pipelines / f"{ROUTES}.yaml").read_text()
    for name in (MARKED, UPSTREAM, SENDER):
        checks = "checks: {in_job_from_bytes: 1}\n" if name == MARKED else ""
        (pipelines / f"{name}.yaml").write_text(routes.replace(ROUTES, name) + checks)
    (pipelines / f"{MENDED}.yaml").write_text(mendable_file(routes))
    ready = (
        "  ready:\n    marker: '{data}/done/{start:%Y-%m-%d}'\n"
        f"    asset: {state_asset_uri(UPSTREAM)}\n    poke_interval: 1s\n"
    )
    waiting = (pipelines / f"{STREAKS}.yaml").read_text().replace(f"name: {STREAKS}", f"name: {WAITING}")
    (pipelines / f"{WAITING}.yaml").write_text(waiting.replace("  columns:\n", f"{ready}  columns:\n"))
    streaks = yaml.safe_load((pipelines / f"{STREAKS}.yaml").read_text())
    fed = {"name": str(FED), "schedule": {"asset": state_asset_uri(SENDER), "start": "2013-01-01"}}
    (pipelines / f"{FED}.yaml").write_text(yaml.safe_dump(streaks | fed, sort_keys=False))
    with (pipelines / f"{STREAKS}.yaml").open("a") as file:
        file.write(PUBLISH)
    (pipelines / f"{BALANCES}.yaml").write_text(balances_file())
    (pipelines / f"{FILLING}.yaml").write_text(filling_file(state_asset_uri(FILLER)))
    places.make_directories()
    (places.data / "flights").symlink_to(data / "flights")
    with airflow_database(places) as places, exclusive(places), listening(places) as receivers:
        migrate(places)
        report_what_registers(places)
        settings = CALM | receivers.settings | with_own_mend(places, root / "own")
        with airflow(places, free_ports(), (*COMPONENTS, "triggerer"), settings=settings) as running:
            running.client.wait_for_dags({DAG, f"{STREAKS}.restore", "state_cleanup", "own_mend"})
            yield World(places, running, receivers)


def test_three_days_are_completed_despite_a_dead_driver_a_cleared_run_and_a_lost_file(
    world: World, flights: pl.DataFrame
) -> None:
    """This is one story, because starting Airflow takes long and each part needs the one before."""
    client = world.client
    client.backfill(DAG, "2013-01-01", "2013-01-02")
    wait_for(lambda: driver(world.places, NAME, 2), "the Spark driver of checkpoint 2").kill()
    for day in ("2013-01-01", "2013-01-02"):
        run = world.wait(day)
        assert run.state == "success", client.failed_log(run)
    assert client.tries(run)["snapshot"] == 2, "the killed try and Airflow's retry"
    assert [r.checkpoint_id for r in world.records()] == [1, 2], "exactly one checkpoint for each interval"
    assert_state(world, flights, days=2)

    before = world.records()
    client.clear(DAG, run.run_id)
    again = world.wait("2013-01-02")
    assert again.state == "success", client.failed_log(again)
    assert client.xcom(again, "begin", "checkpoint_id") == 2
    states = client.task_states(DAG, again.run_id)
    assert (states["snapshot"], states["register"]) == ("skipped", "success"), "the event is sent again"
    assert world.records() == before

    client.backfill(DAG, "2013-01-03", "2013-01-03")
    lost = wait_for(lambda: published_file(world, 3), "the metadata of checkpoint 3")
    lost.unlink()
    failed = world.wait("2013-01-03")
    assert failed.state == "failed"
    log = client.failed_log(failed)
    assert lost.name in log
    assert "key groups" in log
    assert f"statelib: {NAME}, checkpoint 3: check_completeness failed" in log, "the notifier is called"
    aborted = world.records()[-1]
    assert (aborted.checkpoint_id, aborted.state) == (3, CheckpointState.ABORTED)
    assert client.tries(failed)["check_completeness"] == 1, "a broken checkpoint is not worth a retry"

    client.clear(DAG, failed.run_id)
    mended = world.wait("2013-01-03")
    assert mended.state == "success", client.failed_log(mended)
    last = world.completed()[-1]
    assert (last.checkpoint_id, last.base) == (4, 2)
    assert_state(world, flights, days=3)
    check_received(world.received, world.completed())
    assert asset_extra(client) == {"id": 4, "bytes": last.size_bytes, "keys": last.keys, "entries": last.entries}


@large("make test has test_wheel_in_airflow, test_tour and test_cleared_run")
def test_a_savepoint_a_restore_and_a_replay_can_be_run_by_hand(world: World) -> None:
    client, dag = world.client, f"{STREAKS}.checkpoint"
    client.backfill(dag, "2013-01-01", "2013-01-02")
    for day in ("2013-01-01", "2013-01-02"):
        run = world.succeed(world.wait(day, dag))
        assert client.task_states(dag, run.run_id)["publish"] == "success"
    assert_published(world.deployment, STREAKS, 2)

    for conf in ({"checkpoint": "../etc"}, {"checkpoint": "1", "parallelism": 0}, {}):
        with pytest.raises(AirflowRequestError) as refusal:
            client.trigger(f"{STREAKS}.restore", conf)
        assert refusal.value.status in (400, 422)
    unknown = world.trigger(f"{STREAKS}.restore", {"checkpoint": "77"})
    assert unknown.state == "failed"
    assert "has no checkpoint 77" in client.failed_log(unknown)
    assert client.tries(unknown)["plan"] == 1

    world.succeed(world.trigger(f"{STREAKS}.restore", {"checkpoint": "1", "parallelism": 2}))
    head = world.deployment.catalog().head(STREAKS)
    assert (head.head, head.parallelism, head.generation) == (1, 2, 1)
    client.clear(dag, world.wait("2013-01-02", dag).run_id)
    replayed = world.succeed(world.wait("2013-01-02", dag))
    assert client.xcom(replayed, "register")["id"] == 3
    assert lines(world, 3) == lines(world, 2), "the replayed day gives the same state at another parallelism"
    assert_published(world.deployment, STREAKS, 3)

    target = world.places.work / "kept"
    conf = {"target": str(target), "note": "the last", "stop": "drain"}
    saved = world.succeed(world.trigger(f"{STREAKS}.savepoint", conf))
    savepoint = world.records(STREAKS)[-1]
    assert client.xcom(saved, "register")["id"] == savepoint.checkpoint_id == 4
    assert (savepoint.kind, savepoint.owner, savepoint.note) == (SnapshotKind.SAVEPOINT, Owner.USER, "the last")
    assert (savepoint.stop, savepoint.state) == (StopMode.DRAIN, CheckpointState.COMPLETED)
    assert [path.name for path in target.iterdir()] == [f"savepoint-{STREAKS}-4"]
    check_received(world.received, world.records(STREAKS)[:3])
    check_restored_and_saved(world.received, savepoint)

    client.backfill(dag, "2013-01-03", "2013-01-03")
    refused = world.wait("2013-01-03", dag)
    assert refused.state == "failed"
    assert "is cancelled" in client.failed_log(refused)
    suspension.resume(world.deployment, STREAKS, "test")
    assert_a_failed_publishing_is_made_up_for(world, STREAKS, refused.run_id)

    manual = world.trigger(dag, {})
    assert manual.state == "failed"
    assert "data interval" in client.failed_log(manual)


@large("make test mends a day on the page, test_tour")
def test_a_day_can_be_mended_by_hand(world: World) -> None:
    assert_a_day_is_mended(world)


def test_marking_a_run_as_failed_ends_its_job_and_aborts_its_checkpoint(world: World) -> None:
    client, dag, day = world.client, f"{MARKED}.checkpoint", "2013-01-01"
    client.backfill(dag, day, day)
    job = wait_for(lambda: driver(world.places, MARKED, 1), "the Spark driver of checkpoint 1")
    (run,) = client.runs(dag)
    client.fail(dag, run.run_id)
    world.wait(day, dag)  # Airflow itself may then call the run a success: the task that registers was skipped.
    assert client.task_states(dag, run.run_id)["snapshot"] == "failed"
    wait_for(lambda: None if job.is_running() else True, "end of the driver")
    wait_for(lambda: _states(world, MARKED) == [CheckpointState.ABORTED] or None, "end of checkpoint 1")
    wait_for(lambda: _swept(world, MARKED), "end of its files: subtasks take away what they write, the sweep the rest")

    client.clear(dag, run.run_id)
    world.succeed(world.wait(day, dag))
    assert _states(world, MARKED) == [CheckpointState.ABORTED, CheckpointState.COMPLETED]
    assert "by tasks of the Spark job" in str(world.deployment.catalog().gate.results(MARKED, CheckpointId(2)))


def test_a_run_waits_without_a_worker_until_its_source_is_complete(world: World) -> None:
    """The run waits for a file, which the triggerer checks, then for an asset, which the task checks whenever it is
    woken."""
    client, dag, day = world.client, f"{WAITING}.checkpoint", "2013-01-01"
    client.backfill(dag, day, day)
    (run,) = wait_for(lambda: client.runs(dag) or None, "the run")

    def deferred() -> bool | None:
        return client.task_states(dag, run.run_id)["wait_for_source"] == "deferred" or None

    wait_for(deferred, "a wait that left its worker")
    assert world.records(WAITING) == []
    marker = world.places.data / "done" / day
    marker.parent.mkdir()
    marker.touch()
    wait_for(lambda: "was not updated since" in str(client.log(run, "wait_for_source")) or None, "a look at the asset")
    wait_for(deferred, "a wait for the asset")
    assert world.records(WAITING) == []
    client.call("POST", "/assets/events", {"asset_id": asset_id(client, UPSTREAM)})
    world.succeed(world.wait(day, dag))
    assert _states(world, WAITING) == [CheckpointState.COMPLETED]

    marker.unlink()
    client.clear(dag, run.run_id)
    again = world.succeed(world.wait(day, dag))
    assert client.task_states(dag, again.run_id)["snapshot"] == "skipped", "an applied interval is not waited for"


def test_a_run_waits_until_the_partition_that_was_updated_is_over(world: World) -> None:
    assert_a_run_waits(world)


@large("make test has several sources without Airflow")
def test_a_run_applies_the_events_of_several_sources(world: World) -> None:
    assert_several_sources_are_applied(world)


@large("make test has test_airflow_intervals and test_airflow_parts")
def test_updates_of_an_asset_start_runs_for_their_intervals(world: World) -> None:
    client, dag = world.client, f"{FED}.checkpoint"
    client.pause(dag, False)

    def updated(start: str, end: str) -> Run:
        """Return the run that an update starts, after it has ended."""
        return client.wait_for_run(dag, world.update(SENDER, dag, start, end).run_id, PATIENCE_S)

    first = world.succeed(updated("2013-01-01", "2013-01-02"))
    assert client.task_states(dag, first.run_id)["register"] == "success"
    again = world.succeed(updated("2013-01-01", "2013-01-02"))
    assert client.task_states(dag, again.run_id)["snapshot"] == "skipped", "the state has this interval already"
    gap = updated("2013-01-03", "2013-01-04")
    assert gap.state == "failed"
    assert "does not follow the last applied one" in client.failed_log(gap)
    world.succeed(updated("2013-01-02", "2013-01-03"))
    client.clear(dag, gap.run_id)
    world.succeed(client.wait_for_run(dag, gap.run_id, PATIENCE_S))
    days = [record.interval for record in world.records(FED) if record.state is CheckpointState.COMPLETED]
    start = 15_706 * DAY_MS
    assert days == [DataInterval(start + n * DAY_MS, start + (n + 1) * DAY_MS) for n in range(3)]


def asset_id(client: AirflowClient, name: PipelineName) -> int:
    assets = client.call("GET", "/assets?limit=100")["assets"]
    (number,) = [int(asset["id"]) for asset in assets if asset["uri"] == state_asset_uri(name)]
    return number


def state_asset_uri(name: PipelineName) -> str:
    return f"statelib://{name}/state"


def _states(world: World, name: PipelineName) -> list[CheckpointState]:
    return [record.state for record in world.records(name)]


def _swept(world: World, name: PipelineName) -> bool | None:
    """Return whether no file is left after a sweep. Files that a subtask acknowledged exist until then."""
    orphans(world.deployment, name, dry_run=False, force=True)
    return None if any(p.is_file() for p in (world.places.state / name).rglob("*")) else True


def test_cleanup_reports_orphans_and_deletes_them_only_on_request(world: World) -> None:
    """A checkpoint was published and aborted. Then the DAG runs twice: as scheduled, and with the parameter to
    delete."""
    pipeline = world.deployment.pipeline(ROUTES).model_copy(update={"on_gap": "allow"})
    begun = begin(world.deployment, pipeline, DataInterval(23_148 * DAY_MS, 23_149 * DAY_MS), "test").checkpoint_id
    publish_here(world.deployment, pipeline, begun)
    abort(world.deployment, ROUTES, begun, "test")
    left = world.places.state / ROUTES / f"chk-{begun}"
    reported = world.succeed(world.trigger("state_cleanup", {}))
    answer = world.client.xcom(reported, "orphans")[ROUTES]
    assert (answer["files"] > 0, answer["deleted"]) == (True, False)
    assert left.is_dir()
    assert world.client.xcom(reported, "retention")[ROUTES] == []
    before = {r.checkpoint_id: r.state for r in world.records(ROUTES)}
    deleted = world.succeed(world.trigger("state_cleanup", {"dry_run": False}))
    assert world.client.xcom(deleted, "orphans")[ROUTES] == {**answer, "deleted": True}
    assert not left.exists()
    assert {r.checkpoint_id: r.state for r in world.records(ROUTES)} == before


def lines(world: World, number: int) -> list[str]:
    return sorted(export_lines(resolve(world.deployment, f"{STREAKS}/{number}"), None))


def asset_extra(client: AirflowClient) -> dict[str, int]:
    """Return id, bytes, keys and entries from the newest asset event."""
    events = client.call("GET", "/assets/events?order_by=-timestamp&limit=1")["asset_events"]
    assert events[0]["extra"]["duration_ms"] > 0
    return {key: events[0]["extra"][key] for key in ("id", "bytes", "keys", "entries")}


def assert_state(world: World, flights: pl.DataFrame, days: int) -> None:
    head = world.deployment.catalog().head(NAME).head
    assert head is not None
    directory = world.deployment.catalog().get(NAME, head).directory
    answer = aircraft_found(open_checkpoint(directory, storage_root=world.deployment.storage_root))
    seen = flights.filter(pl.col("time_hour") < datetime(2013, 1, 1 + days, tzinfo=UTC))
    result = difference("aircraft", aircraft_expected(seen), answer, ["tailnum"])
    assert result.different == 0, result.examples


def published_file(world: World, number: int) -> Path | None:
    """Return a data file of a checkpoint whose metadata exists; no other checkpoint shares the file."""
    directory = world.places.state / NAME / f"chk-{number}"
    if not (directory / "_metadata").exists():
        return None
    manifest = open_checkpoint(str(directory)).manifest
    assert manifest is not None
    return directory / next(file.path for file in manifest.files if "/" not in file.path)


def wait_for(find: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if (answer := find()) is not None:
            return answer
        time.sleep(0.5)
    raise AssertionError(f"no {what} after {PATIENCE_S:.0f} s")
