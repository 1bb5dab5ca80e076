"""Deployments for tests: a directory each, SQLite, the project's own pipelines."""

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.definition.columns import event_schema, key_array
from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan, plan_snapshot
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import CheckpointId
from statelib.serializers.entries.keys import key_groups
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask

CHECKOUT = Path(__file__).resolve().parents[2]
CALM = {
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "1800",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1",
}
"""Settings of an Airflow in tests, whose pipeline files do not change: it uses a third of the processor time when it
is idle."""


def new_deployment(root: Path, data: Path, pipelines: Path = CHECKOUT / "dags" / "pipelines") -> Deployment:
    """Return a deployment in ``root``, on SQLite, by default with the project's own pipelines."""
    for name in ("state", "docs", "scratch"):
        (root / name).mkdir(parents=True, exist_ok=True)
    return Deployment(
        catalog_url=f"sqlite:///{root}/catalog.db",
        storage_root=str(root / "state"),
        pipelines_directory=str(pipelines),
        data=str(data),
        docs_directory=str(root / "docs"),
        work_directory=str(root / "scratch"),
    )


def day(number: int) -> DataInterval:
    """Return the data interval of a day of January 2013, UTC."""
    start = datetime(2013, 1, 1, tzinfo=UTC) + timedelta(days=number - 1)
    return DataInterval(int(start.timestamp() * 1000), int((start + timedelta(days=1)).timestamp() * 1000))


def checkpoint_of(deployment: Deployment, name: str, number: int, events: pa.Table) -> CheckpointId:
    """Apply the events of a day and register the checkpoint, as the DAG does, but in this process: no Spark, no
    Airflow, no gate."""
    pipeline = deployment.pipeline(name)
    begun = begin(deployment, pipeline, day(number), "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, events)
    return register(deployment, pipeline, begun.checkpoint_id).checkpoint_id


def publish_here(
    deployment: Deployment, pipeline: Pipeline, checkpoint_id: CheckpointId, events: pa.Table | None = None
) -> None:
    """Run the snapshot job of a pending checkpoint or savepoint, subtask after subtask."""
    plan = plan_snapshot(deployment, pipeline, checkpoint_id)
    assert plan is not None
    publish_planned(deployment, pipeline, plan, events)


def publish_planned(
    deployment: Deployment, pipeline: Pipeline, plan: SnapshotPlan, events: pa.Table | None = None
) -> None:
    """Run the subtasks of a planned snapshot and publish it, as the Spark job does."""
    work = Work(deployment, pipeline, plan)
    events = event_schema(pipeline).empty_table() if events is None else events
    parts = [events.filter(pa.array(mask)) for mask in owned(pipeline, plan, events)]
    reports = [snapshot_subtask(work, subtask, subtask, part) for subtask, part in enumerate(parts)]
    publish(deployment, pipeline, plan, len(events), reports)


def owned(pipeline: Pipeline, plan: SnapshotPlan, events: pa.Table) -> list[npt.NDArray[np.bool_]]:
    """Return for each subtask its own events."""
    groups = key_groups(plan.layout.schema, key_array(pipeline, events))
    return [(groups >= r.start) & (groups <= r.end) for r in plan.layout.ranges]


def descriptors() -> list[str]:
    """Return the target of each open file descriptor of this process."""
    targets = []
    for number in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue
    return targets


def own_threads(kind: str = "", patience_s: float = 10.0) -> list[str]:
    """Return the names of the project's threads that do not end. One that has handed its result over may still be
    about to. A thread whose start a signal interrupted stays in Python's list of threads and never runs: it has no
    ``ident``, and is left out."""
    threads = [t for t in threading.enumerate() if t.name.startswith(f"statelib-{kind}") and t.ident is not None]
    for thread in threads:
        thread.join(patience_s)
    return [thread.name for thread in threads if thread.is_alive()]
