"""A day with wrong data in a real Airflow: restore, repair and replay, while a team's own DAG runs beside it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from demo.airflow_client import AirflowRequestError
from demo.airflow_process import RunningAirflow, airflow, exclusive, free_ports, migrate
from demo.places import Places
from demo.poisoned_day import asked, day_of, tell
from demo.prepare import write_days
from demo.telling import Story
from statelib.flows import wiring
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState
from tests.integration.own_dags import with_own_dags
from tests.support.airflow_database import airflow_database
from tests.support.extent import large
from tests.support.worlds import CALM

NAME, STREAKS = PipelineName("aircraft_activity"), PipelineName("carrier_streaks")
DAYS, POISONED = 3, 2
PATIENCE_S = 600.0
ALERTS = "alerts: {deadline: 1s}  # every run is late\n"
STRATEGY = "strategy: canonical"

OWN_RESTORE = f"""
from airflow.sdk import DAG, Param
from statelib_airflow.operators import RestoreOperator
with DAG("own_restore", schedule=None, params={{"checkpoint": Param(type="string"), "parallelism": None}}):
    RestoreOperator(
        task_id="back", pipeline="{STREAKS}", checkpoint="{{{{ params.checkpoint }}}}",
        parallelism="{{{{ params.parallelism }}}}", retries=0,
    )
"""

pytestmark = [pytest.mark.timeout(1800), large("make test has test_airflow_run, test_wheel_in_airflow")]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, flights: pl.DataFrame) -> Iterator[RunningAirflow]:
    root = tmp_path_factory.mktemp("story")
    pipelines = root / "pipelines"
    pipelines.mkdir()
    places = Places(work=root / "work", pipelines=pipelines)
    for name in (NAME, STREAKS):
        text = (places.checkout / "dags" / "pipelines" / f"{name}.yaml").read_text()
        text = text.replace("delay_s: 10", "delay_s: 1").replace(STRATEGY, f"{STRATEGY}, inline_threshold_bytes: 0")
        (pipelines / f"{name}.yaml").write_text(text + ALERTS)
    places.make_directories()
    write_days(flights.filter(pl.col("time_hour") < datetime(2013, 1, 8, tzinfo=UTC)), places.data / "flights")
    settings = CALM | with_own_dags(places, root / "own", {"own_restore.py": OWN_RESTORE})
    with airflow_database(places) as places, exclusive(places):
        migrate(places)
        with airflow(places, free_ports(), settings=settings) as up:
            wanted = {f"{NAME}.restore", f"{STREAKS}.dispose", "example_own_dag", "state_verify", "own_restore"}
            up.client.wait_for_dags(wanted)
            yield up


def test_a_day_with_wrong_data_is_undone_by_a_restore_repaired_and_replayed(
    running: RunningAirflow, flights: pl.DataFrame
) -> None:
    deployment, client = wiring.deployment(running.environment), running.client
    story = Story(client, print, NAME)
    output = tell(story, deployment, flights, days=DAYS, poisoned=POISONED, at_once=2)
    assert list(output.ids) == [day_of(number) for number in range(1, DAYS + 1)], "in order, though started together"
    assert output.before.different > 0, "the poison shows"
    assert output.after.different == 0, output.after.examples
    before = output.ids[day_of(POISONED - 1)]
    assert f"Restore `{NAME}` to checkpoint {before}" in output.plan
    assert f"leaves behind: {DAYS}, {POISONED}" in output.plan
    assert set(client.task_states(output.restored.dag_id, output.restored.run_id).values()) == {"success"}

    catalog = deployment.catalog()
    head = catalog.head(NAME)
    assert head.generation == 1
    assert head.head is not None
    history = [r.checkpoint_id for r in catalog.lineage(NAME, head.head)]
    assert history == [5, 4, before], "the poisoned checkpoints are no part of the state"
    records = [r for r in catalog.list(NAME) if r.state is CheckpointState.COMPLETED]
    assert len(records) == 5, "they can still be looked at"
    assert_late_runs_were_reported(running)
    assert_a_rejected_plan_changes_nothing(running)
    assert_state_verify_finds_damage(running)


def assert_late_runs_were_reported(running: RunningAirflow) -> None:
    """Assert that late runs were reported: by Airflow's executor, and in the callback's log if no notifier is
    configured."""
    logs = Path(running.environment["AIRFLOW__LOGGING__BASE_LOG_FOLDER"]) / "executor_callbacks"
    log_texts = [text for path in logs.rglob("*") if path.is_file() and "the run is late" in (text := path.read_text())]
    assert log_texts
    assert all(f"statelib: {NAME}" in text and f"{NAME}.checkpoint backfill__" in text for text in log_texts)


def assert_a_rejected_plan_changes_nothing(running: RunningAirflow) -> None:
    deployment, client, dag_id = wiring.deployment(running.environment), running.client, f"{NAME}.restore"
    before = deployment.catalog().head(NAME)
    run = client.run(dag_id, client.trigger(dag_id, {"checkpoint": "2", "approval": True, "replay": True}))
    assert asked(client, run)["options"] == ["Approve", "Reject"]
    client.answer(run, "approve", "Reject")
    assert client.wait_for_run(dag_id, run.run_id, PATIENCE_S).state == "success", "a no is an answer"
    skipped = dict.fromkeys(("rehearse", "switch", "replay"), "skipped")
    assert client.task_states(dag_id, run.run_id) == {"plan": "success", "approve": "success", **skipped}
    assert deployment.catalog().head(NAME) == before


def test_a_teams_own_dag_takes_checkpoints_and_savepoints_and_disposes_of_them(running: RunningAirflow) -> None:
    deployment, client = wiring.deployment(running.environment), running.client
    client.pause("example_own_dag", False)
    run = client.wait_for_run(
        "example_own_dag", client.trigger("example_own_dag", {}, "2013-01-06T00:00:00Z"), PATIENCE_S
    )
    assert run.state == "success", client.failed_log(run)
    records = {r.checkpoint_id: r for r in deployment.catalog().list(STREAKS)}
    assert {number: r.kind for number, r in records.items()} == {1: SnapshotKind.CHECKPOINT, 2: SnapshotKind.SAVEPOINT}
    assert all(r.state is CheckpointState.COMPLETED for r in records.values())
    facts = client.xcom(run, "checkpoint")
    first = records[CheckpointId(1)]
    assert (facts["id"], facts["keys"], facts["entries"]) == (1, first.keys, first.entries)
    (event,) = client.call("GET", "/assets/events?source_dag_id=example_own_dag")["asset_events"]
    assert {name: event["extra"][name] for name in facts} == facts
    assert set(facts) == {"id", "bytes", "keys", "entries", "duration_ms"}
    assert records[CheckpointId(2)].note == "week until 2013-01-06"

    dispose = f"{STREAKS}.dispose"
    with pytest.raises(AirflowRequestError):
        client.trigger(dispose, {"savepoint": "all"})
    asked = client.wait_for_run(dispose, client.trigger(dispose, {"savepoint": "2"}), PATIENCE_S)
    assert client.task_states(dispose, asked.run_id) == {"preview": "success", "dispose": "skipped"}
    assert _is_there(deployment, 2)
    disposal = client.wait_for_run(dispose, client.trigger(dispose, {"savepoint": "2", "confirm": True}), PATIENCE_S)
    assert disposal.state == "success", client.failed_log(disposal)
    assert not _is_there(deployment, 2)
    assert_a_team_restores(running)


def assert_a_team_restores(running: RunningAirflow) -> None:
    """Assert that a DAG of a team restores with an operator. A damaged checkpoint does not become the head and is
    not held any longer; after it was repaired, it is restored."""
    deployment, client = wiring.deployment(running.environment), running.client
    directory = Path(deployment.root_uri().removeprefix("file:")) / STREAKS / "chk-1"
    damaged = min(p for p in directory.iterdir() if "-" in p.name)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    failed = client.wait_for_run("own_restore", client.trigger("own_restore", {"checkpoint": "1"}), PATIENCE_S)
    assert failed.state == "failed"
    assert (deployment.catalog().head(STREAKS).generation, _held(deployment)) == (0, frozenset())
    damaged.write_bytes(content)
    conf = {"checkpoint": "1", "parallelism": "3"}
    done = client.wait_for_run("own_restore", client.trigger("own_restore", conf), PATIENCE_S)
    assert done.state == "success", client.failed_log(done)
    assert client.xcom(done, "back") == {"head": 1, "generation": 1, "parallelism": 3}
    assert _held(deployment) == frozenset()


def assert_state_verify_finds_damage(running: RunningAirflow) -> None:
    deployment, client = wiring.deployment(running.environment), running.client
    directory = Path(deployment.root_uri().removeprefix("file:")) / NAME
    damaged = min(p for p in directory.rglob("*") if p.is_file() and p.name != "_metadata")
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    run = client.wait_for_run(
        "state_verify", client.trigger("state_verify", {"read_data_subset": "100%", "pipeline": NAME}), PATIENCE_S
    )
    assert run.state == "failed"
    assert damaged.name in client.failed_log(run)


def _held(deployment: Deployment) -> frozenset[CheckpointId]:
    return deployment.catalog().cleanup.situation(STREAKS).in_use


def _is_there(deployment: Deployment, number: int) -> bool:
    return deployment.catalog().get(STREAKS, CheckpointId(number)).state is CheckpointState.COMPLETED
