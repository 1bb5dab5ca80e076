"""Metrics, lineage events and log lines of a running Airflow about checkpoints, received on loopback."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import create_engine, inspect, text

from demo.places import Places, Ports, environment
from statelib.model.record import CheckpointRecord
from tests.integration.receivers import Posted, StatsD, http, statsd

CANARY = "canary-that-nobody-may-see"


@dataclass
class Received:
    places: Places
    metrics: StatsD
    lineage: Posted

    @property
    def settings(self) -> dict[str, str]:
        """Return the environment variables that make Airflow's processes send to these receivers."""
        transport = {"type": "http", "url": self.lineage.url, "endpoint": "lineage"}
        return {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(self.metrics.port),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
            "AIRFLOW__OPENLINEAGE__NAMESPACE": "tests",
            "AIRFLOW__OPENLINEAGE__SELECTIVE_ENABLE": "True",
            "STORAGE_PASSWORD": CANARY,
        }

    def events(self, job: str) -> list[dict[str, Any]]:
        """Return the lineage events of one task's runs that name data sets, in order."""
        bodies = (json.loads(body) for _, body in self.lineage.requests)
        return [event for event in bodies if event["job"]["name"] == job and event.get("outputs")]

    def log(self, dag: str, task: str) -> list[dict[str, Any]]:
        """Return every line of a task's logs, of all runs and tries."""
        files = sorted((self.places.airflow / "logs").glob(f"dag_id={dag}/run_id=*/task_id={task}/*.log"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines() if line.startswith("{")]


@contextmanager
def listening(places: Places) -> Iterator[Received]:
    with statsd() as metrics, http() as lineage:
        yield Received(places, metrics, lineage)


def report_what_registers(places: Places) -> None:
    """Let only the tasks that register report to OpenLineage. Airflow forks two processes for the reports of a task,
    which take a fifth of the processor time of a run. Call it after ``migrate``."""
    with (places.airflow / "config" / "airflow_local_settings.py").open("a") as file:
        file.write(
            "from airflow.providers.openlineage.utils.selective_enable import enable_lineage\n"
            "def task_policy(task):\n"
            "    if task.task_id == 'register':\n"
            "        enable_lineage(task)\n"
        )


def check_received(received: Received, records: Sequence[CheckpointRecord]) -> None:
    """Check what was received about the completed checkpoints of a pipeline, the first of which are of the first and
    the second day."""
    first, numbers = records[0], {record.checkpoint_id for record in records}
    _check_metrics(received, first)
    _check_lineage(received, records)
    dag = f"{first.pipeline}.checkpoint"
    for task in ("begin", "snapshot", "check_completeness", "register"):
        assert numbers <= {line.get("checkpoint_id") for line in received.log(dag, task)}, task
    bound = [line for line in received.log(dag, "register") if "registered" in line["event"]]
    assert {line["pipeline"] for line in bound} == {first.pipeline}
    spark = "\n".join(str(line["event"]) for line in received.log(dag, "snapshot"))
    for each in ("published: ", "snapshot taken in"):
        lines = [line for line in spark.splitlines() if each in line]
        assert any(f"[pipeline={first.pipeline} checkpoint_id=1 attempt=" in line for line in lines), each
    logs = (received.places.airflow / "logs").rglob("*.log")
    assert [path for path in logs if CANARY.encode() in path.read_bytes()] == []
    values = list(_stored_by_airflow(received.places))
    assert any(f"{first.pipeline}.checkpoint" in value for value in values)
    assert [value for value in values if CANARY in value] == []


def _stored_by_airflow(places: Places) -> Iterator[str]:
    """Yield each row of Airflow's database as a text. XComs and rendered fields are among them."""
    engine = create_engine(environment(places, Ports())["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    with engine.connect() as connection:
        for name in inspect(engine).get_table_names():
            yield from (repr(tuple(row)) for row in connection.execute(text(f'SELECT * FROM "{name}"')))
    engine.dispose()


def _check_metrics(received: Received, first: CheckpointRecord) -> None:
    tags = f"pipeline={first.pipeline},kind=checkpoint,strategy={first.strategy}"
    for name in (
        "completed",
        "duration",
        "size_bytes",
        "uploaded_bytes",
        "keys",
        "entries",
        "keys_changed",
        "events",
        "lag",
    ):
        assert tags in received.metrics.values(f"airflow.statelib.checkpoint.{name}"), name
    judged = received.metrics.values("airflow.statelib.gate.checks")
    assert judged[f"pipeline={first.pipeline},severity=fail,result=passed"] > 0


def check_restored_and_saved(received: Received, first: CheckpointRecord) -> None:
    """Check that the metrics of one restore and of a savepoint of a pipeline were received. ``first``: a checkpoint of
    it."""
    restored = received.metrics.values("airflow.statelib.restore.completed")
    assert restored[f"pipeline={first.pipeline}"] == 1
    savepoint = f"pipeline={first.pipeline},kind=savepoint,strategy="
    assert any(tags.startswith(savepoint) for tags in received.metrics.values("airflow.statelib.checkpoint.completed"))


def _check_lineage(received: Received, records: Sequence[CheckpointRecord]) -> None:
    first, second = records[:2]
    name = first.pipeline
    by_version = {
        event["outputs"][0]["facets"]["version"]["datasetVersion"]: event
        for event in received.events(f"{name}.checkpoint.register")
    }
    assert set(by_version) == {str(record.checkpoint_id) for record in records}
    event = by_version[str(second.checkpoint_id)]
    (state,) = event["outputs"]
    assert (state["namespace"], state["name"]) == (f"statelib://{name}", "state")
    quality = state["facets"]["dataQualityMetrics"]
    assert (quality["rowCount"], quality["bytes"]) == (second.keys, second.size_bytes)
    assert sum(column["count"] for column in quality["columnMetrics"].values()) == second.entries
    assert state["facets"]["schema"]["fields"][0]["name"] == "key"
    source, before = event["inputs"]
    assert (source["namespace"], source["name"].rpartition("/")[2]) == ("file", "2013-01-02")
    assert second.events is not None
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == second.events.read
    assert (before["namespace"], before["facets"]["version"]["datasetVersion"]) == (
        state["namespace"],
        str(first.checkpoint_id),
    )
    assert event["run"]["facets"]["parent"]["job"]["name"] == f"{name}.checkpoint"
