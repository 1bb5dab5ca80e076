"""The part of the test of a real Airflow that corrects a day."""

import json
import re
import shutil
from pathlib import Path
from typing import Protocol

import polars as pl

from demo.airflow_client import AirflowClient, Run
from demo.places import Places
from demo.poisoned_day import asked
from demo.telling import RUN_PATIENCE_S
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointRecord
from tests.integration.own_dags import with_own_dags
from tests.support.worlds import day

MENDED = PipelineName("mended")
"""A copy of the pipeline of routes whose intervals can be mended."""
OWN_DAG = f"""
from airflow.sdk import DAG, Param
from statelib_airflow.operators import MendOperator
with DAG("own_mend", schedule=None, params={{"interval": Param(type="string")}}):
    MendOperator(task_id="mend", pipeline="{MENDED}", interval="{{{{ params.interval }}}}", retries=0)
"""
"""The file of a team's own DAG."""


class AirflowWorld(Protocol):
    """A running Airflow over a deployment of its own."""

    places: Places
    client: AirflowClient
    deployment: Deployment

    def records(self, name: PipelineName) -> list[CheckpointRecord]: ...
    def wait(self, day: str, dag: str) -> Run: ...
    def trigger(self, dag: str, conf: dict[str, str]) -> Run: ...
    def succeed(self, run: Run) -> Run: ...


def with_own_mend(places: Places, directory: Path) -> dict[str, str]:
    """Return the settings with which Airflow reads :data:`OWN_DAG` too."""
    return with_own_dags(places, directory, {"own_mend.py": OWN_DAG})


def mendable_file(routes: str) -> str:
    """Return the file of :data:`MENDED`. ``routes``: the file of the pipeline that it is a copy of."""
    named = routes.replace("name: route_delays", f"name: {MENDED}").replace("{data}/flights/", "{data}/corrected/")
    return named.replace("checkpoint: {", "checkpoint: {mendable: 30d, ")


def assert_a_day_is_mended(world: AirflowWorld) -> None:
    """Assert that the mend DAG corrects the first of two days, and that it refuses a day that the state does not
    have."""
    client, dag, mend = world.client, f"{MENDED}.checkpoint", f"{MENDED}.mend"
    flights = world.places.data / "flights"
    corrected = world.places.data / "corrected"
    for each in ("2013-01-01", "2013-01-02"):
        shutil.copytree(flights / each, corrected / each)
    client.backfill(dag, "2013-01-01", "2013-01-02")
    for each in ("2013-01-01", "2013-01-02"):
        world.succeed(world.wait(each, dag))
    shutil.rmtree(corrected / "2013-01-01")
    shutil.copytree(flights / "2013-01-03", corrected / "2013-01-01")
    shutil.rmtree(corrected / "2013-01-02")  # the later day is not read
    unknown = world.trigger(mend, {"interval": "2013-01-07"})
    assert unknown.state == "failed"
    assert "no interval in the history of its state begins at 2013-01-07" in client.failed_log(unknown)
    assert_a_rejected_mend_changes_nothing(world)
    run = client.run(mend, client.trigger(mend, {"interval": "2013-01-01", "approval": True}))
    body = asked(client, run)["body"]
    client.answer(run, "approve", "Approve")
    run = world.succeed(client.wait_for_run(mend, run.run_id, RUN_PATIENCE_S))
    record = world.records(MENDED)[-1]
    assert client.xcom(run, "register")["id"] == record.checkpoint_id == 3
    assert (record.base, record.mends) == (2, day(1))
    assert_differences_are_shown(world, body)
    assert_flights_of(world, "2013-01-02", "2013-01-03")
    assert_a_teams_own_dag_mends(world)


def assert_a_teams_own_dag_mends(world: AirflowWorld) -> None:
    """Assert that the operator corrects the second day, and that the mend DAG asks nobody without ``approval``: it
    corrects the first day once more, from which nothing changes."""
    client, flights = world.client, world.places.data / "flights"
    shutil.copytree(flights / "2013-01-04", world.places.data / "corrected" / "2013-01-02")
    run = world.succeed(world.trigger("own_mend", {"interval": "2013-01-02"}))
    record = world.records(MENDED)[-1]
    assert (record.checkpoint_id, record.base, record.mends) == (4, 3, day(2))
    facts = {"id": 4, "bytes": record.size_bytes, "keys": record.keys, "entries": record.entries}
    assert client.xcom(run, "mend").items() >= facts.items()
    assert "builds on: checkpoint 3" in client.xcom(run, "mend", "plan")
    assert_flights_of(world, "2013-01-03", "2013-01-04")
    run = world.succeed(world.trigger(f"{MENDED}.mend", {"interval": "2013-01-01"}))
    assert client.task_states(run.dag_id, run.run_id).items() >= {"preview": "skipped", "approve": "skipped"}.items()
    record = world.records(MENDED)[-1]
    assert (record.checkpoint_id, record.base, record.mends) == (5, 4, day(1))
    assert_flights_of(world, "2013-01-03", "2013-01-04")


def assert_flights_of(world: AirflowWorld, *days: str) -> None:
    """Assert that the newest checkpoint has as many flights as these days."""
    rows = world.deployment.open(world.records(MENDED)[-1]).to_arrow("delays").to_pylist()
    expected = sum(len(pl.read_parquet(world.places.data / "flights" / each)) for each in days)
    assert sum(row["value"]["flights"] for row in rows) == expected


def assert_a_rejected_mend_changes_nothing(world: AirflowWorld) -> None:
    """Assert that no checkpoint is begun, and that no file of the preview is left, if the correction is rejected."""
    client, dag, before = world.client, f"{MENDED}.mend", world.records(MENDED)
    files = stored_files(world)
    run = client.run(dag, client.trigger(dag, {"interval": "2013-01-01", "approval": True}))
    assert asked(client, run)["options"] == ["Approve", "Reject"]
    client.answer(run, "approve", "Reject")
    assert client.wait_for_run(dag, run.run_id, RUN_PATIENCE_S).state == "success", "a no is an answer"
    states = client.task_states(dag, run.run_id)
    assert {states.pop(name) for name in ("plan", "preview", "approve")} == {"success"}
    assert set(states.values()) == {"skipped"}
    assert (world.records(MENDED), stored_files(world)) == (before, files)


def stored_files(world: AirflowWorld) -> set[Path]:
    return {path for path in (world.places.state / MENDED).rglob("*") if path.is_file()}


def delays_of(world: AirflowWorld, record: CheckpointRecord) -> dict[str, dict[str, float]]:
    """Return the values of a checkpoint's state by their keys, with the names that the pipeline file gives them."""
    names, entries = world.deployment.pipeline(MENDED).key, world.deployment.open(record).to_arrow("delays").to_pylist()
    return {json.dumps(dict(zip(names, row["key"].values(), strict=True))): row["value"] for row in entries}


def assert_differences_are_shown(world: AirflowWorld, body: str) -> None:
    """Assert that the question of an approved correction has the plan, and the differences that it then made."""
    old, new = (delays_of(world, record) for record in world.records(MENDED)[-2:])
    changed = sum(old[key] != new[key] for key in old.keys() & new.keys())
    counts = f"{len(new.keys() - old.keys())} added, {len(old.keys() - new.keys())} removed, {changed} changed"
    assert "builds on: checkpoint 2" in body
    _, _, rest = body.partition(f"- ` delays `: {counts}\n")
    keys = re.findall(r"^    - (\w+), key ` (.+?) `: ` ", rest.partition("\n- ")[0], re.MULTILINE)
    assert len(keys) == 5
    kinds = {"added": new.keys() - old.keys(), "removed": old.keys() - new.keys(), "changed": old.keys() & new.keys()}
    for kind, text in keys:
        assert text in kinds[kind]
