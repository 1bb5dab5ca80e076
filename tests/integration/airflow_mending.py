"""The part of the test of a real Airflow that corrects a day."""

import shutil
from typing import Protocol

import polars as pl

from demo.airflow_client import AirflowClient, Run
from demo.places import Places
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointRecord
from tests.support.worlds import day

MENDED = PipelineName("mended")
"""A copy of the pipeline of routes whose intervals can be mended."""


class AirflowWorld(Protocol):
    """A running Airflow over a deployment of its own."""

    places: Places
    client: AirflowClient
    deployment: Deployment

    def records(self, name: PipelineName) -> list[CheckpointRecord]: ...
    def wait(self, day: str, dag: str) -> Run: ...
    def trigger(self, dag: str, conf: dict[str, str]) -> Run: ...
    def succeed(self, run: Run) -> Run: ...


def mendable_file(routes: str) -> str:
    """Return the file of :data:`MENDED`. ``routes``: the file of the pipeline that it is a copy of."""
    named = routes.replace("name: route_delays", f"name: {MENDED}").replace("{data}/flights/", "{data}/corrected/")
    return named.replace("checkpoint: {", "checkpoint: {mendable: 30d, ")


def assert_a_day_is_mended(world: AirflowWorld) -> None:
    """Assert that the mend DAG corrects the first of two days, and that it refuses a day that the state does not
    have."""
    client, dag, flights = world.client, f"{MENDED}.checkpoint", world.places.data / "flights"
    corrected = world.places.data / "corrected"
    for each in ("2013-01-01", "2013-01-02"):
        shutil.copytree(flights / each, corrected / each)
    client.backfill(dag, "2013-01-01", "2013-01-02")
    for each in ("2013-01-01", "2013-01-02"):
        world.succeed(world.wait(each, dag))
    shutil.rmtree(corrected / "2013-01-01")
    shutil.copytree(flights / "2013-01-03", corrected / "2013-01-01")
    shutil.rmtree(corrected / "2013-01-02")  # the later day is not read
    unknown = world.trigger(f"{MENDED}.mend", {"interval": "2013-01-07"})
    assert unknown.state == "failed"
    assert "no interval in the history of its state begins at 2013-01-07" in client.failed_log(unknown)
    run = world.succeed(world.trigger(f"{MENDED}.mend", {"interval": "2013-01-01"}))
    record = world.records(MENDED)[-1]
    assert client.xcom(run, "register")["id"] == record.checkpoint_id == 3
    assert (record.base, record.mends) == (2, day(1))
    rows = [row["value"]["flights"] for row in world.deployment.open(record).to_arrow("delays").to_pylist()]
    assert sum(rows) == sum(len(pl.read_parquet(flights / each)) for each in ("2013-01-02", "2013-01-03"))
