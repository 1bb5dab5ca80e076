"""A subtask for tests to kill: a real worker with a slow real storage. It prints a line when it has begun to write.

With the argument ``spark`` it runs in a Python worker of a Spark job, whose output is its JVM's standard error."""

import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from statelib.definition.source.parts import source_parts
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import begin
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from statelib.testing.faulty_streams import FaultyStreams

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # The tests may run under nohup, and an ignored signal stays ignored.
root, slow_from = Path(sys.argv[1]), int(sys.argv[2])


def slowly(number: int) -> None:
    if number == slow_from:
        print("writing", flush=True)
    if number >= slow_from:
        time.sleep(1)


class SlowStorage:
    def __init__(self, real: Any) -> None:
        self._real = real

    def resolve_checkpoint_storage_location(self, *where: Any) -> FaultyStreams:
        return FaultyStreams(self._real.resolve_checkpoint_storage_location(*where), slowly)


class SlowDeployment(Deployment):
    def worker_storage(self, pipeline: Any) -> Any:
        return SlowStorage(super().worker_storage(pipeline))


places = (
    f"sqlite:///{root}/catalog.db",
    *(str(root / name) for name in ("state", "pipelines", "data", "docs", "work")),
)
deployment = Deployment(*places)
pipeline = deployment.pipeline("slow")
interval = DataInterval(0, 86_400_000)
begun = begin(deployment, pipeline, interval, "test")
events = pa.table({"key": [f"key-{n}" for n in range(2000)], "amount": pa.array(range(2000), pa.int64())})
if sys.argv[3:] == ["spark"]:
    from statelib.spark.session.local_session import new_session
    from statelib.spark.snapshot.driver import run_snapshot

    (part,) = source_parts(pipeline, deployment.data, interval)
    pq.write_table(events, part.path)
    spark = new_session("slow", "local[1]")
    print("ready", flush=True)
    run_snapshot(spark, SlowDeployment(*places), pipeline, begun.checkpoint_id)
else:
    plan = plan_snapshot(deployment, pipeline, begun.checkpoint_id)
    assert plan is not None
    print("ready", flush=True)
    snapshot_subtask(Work(SlowDeployment(*places), pipeline, plan), 0, 1, events)
print("not killed", flush=True)
