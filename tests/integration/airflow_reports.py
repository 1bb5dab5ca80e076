"""Metrics, lineage events and log lines of a running Airflow about checkpoints, received on loopback."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from demo.places import Places
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


def check_received(received: Received, records: Sequence[CheckpointRecord]) -> None:
    """Check what was received about checkpoints 1, 2 and 3, savepoint 4, and the restore of 1 before 3."""
    first = records[0]
    _check_metrics(received, first)
    _check_lineage(received, records)
    dag = f"{first.pipeline}.checkpoint"
    for task in ("begin", "snapshot", "check_completeness", "register"):
        assert {1, 2, 3} <= {line.get("checkpoint_id") for line in received.log(dag, task)}, task
    bound = [line for line in received.log(dag, "register") if "registered" in line["event"]]
    assert {line["pipeline"] for line in bound} == {first.pipeline}
    spark = "\n".join(str(line["event"]) for line in received.log(dag, "snapshot"))
    for each in ("published: ", "snapshot taken in"):
        lines = [line for line in spark.splitlines() if each in line]
        assert any(f"[pipeline={first.pipeline} checkpoint_id=1 attempt=" in line for line in lines), each
    database = received.places.airflow.glob("airflow.db*")  # The database contains XComs and rendered fields.
    files = [*database, *(received.places.airflow / "logs").rglob("*.log")]
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []


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
    assert received.metrics.values("airflow.statelib.restore.completed") == {f"pipeline={first.pipeline}": 1}
    savepoint = tags.replace("kind=checkpoint", "kind=savepoint").rpartition("=")[0]
    completed = received.metrics.values("airflow.statelib.checkpoint.completed")
    assert any(bodies.startswith(savepoint) for bodies in completed)
    judged = received.metrics.values("airflow.statelib.gate.checks")
    assert judged[f"pipeline={first.pipeline},severity=fail,result=passed"] > 0


def _check_lineage(received: Received, records: Sequence[CheckpointRecord]) -> None:
    first, second, last = records[:3]
    name = first.pipeline
    by_version = {
        event["outputs"][0]["facets"]["version"]["datasetVersion"]: event
        for event in received.events(f"{name}.checkpoint.register")
    }
    assert set(by_version) == {str(r.checkpoint_id) for r in (first, second, last)}
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
    assert (before["namespace"], before["facets"]["version"]["datasetVersion"]) == (state["namespace"], "1")
    assert event["run"]["facets"]["parent"]["job"]["name"] == f"{name}.checkpoint"
