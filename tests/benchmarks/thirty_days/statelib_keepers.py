"""statelib's pipeline without Spark: whole runs, from begin to register with the gate, in one process that runs the
subtasks one after the other. This is not a way to run pipelines; it shows what Spark costs."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from statelib.definition.pipeline import Pipeline
from statelib.flows.wiring import Deployment
from statelib.savepoints.opened import open_checkpoint
from tests.benchmarks.events import new_deployment, new_pipeline
from tests.benchmarks.in_process import Subtasks
from tests.benchmarks.state_columns import COLUMNS
from tests.benchmarks.thirty_days.keeper import Mode

SETTINGS = {
    "rocksdb": ("rocksdb", "incremental", ""),
    "heap": ("heap", "changelog", ""),
    "blind": ("heap", "changelog", "blind: true"),
}


class InProcess:
    """The subtasks of a pipeline in this process."""

    def __init__(self, root: Path, mode: Mode, setting: str) -> None:
        self._deployment, self._pipeline = deployed(root, mode, setting)
        self._subtasks = Subtasks(self._deployment, self._pipeline)

    def day(self, number: int, batch: Path) -> None:
        self._subtasks.prepare(number, pq.read_table(batch))
        self._subtasks.apply()
        self._subtasks.finish(judged=True)

    def export(self, target: Path) -> None:
        exported(self._deployment, self._pipeline, target)

    def close(self) -> None:
        pass


def deployed(root: Path, mode: Mode, setting: str) -> tuple[Deployment, Pipeline]:
    """Return the deployment and the pipeline. Warm RocksDB keeps copies on the host."""
    backend, strategy, more = SETTINGS[setting]
    if mode == "warm" and backend == "rocksdb":
        more = "local_recovery: true"
    deployment = replace(new_deployment(root), local_directory=str(root / "local"))
    return deployment, new_pipeline(root, backend, strategy, settings=more)


def exported(deployment: Deployment, pipeline: Pipeline, target: Path) -> None:
    newest = max(deployment.catalog().list(pipeline.name), key=lambda record: record.checkpoint_id)
    opened = open_checkpoint(newest.directory, storage_root=deployment.storage_root)
    rows = pl.DataFrame(opened.to_arrow("activity", deployment.work_directory).select(["key", "value"]))
    state = rows.unnest("value").unnest("last").rename({"by_ts": "ts", "value": "text"})
    state.select(COLUMNS).write_parquet(target / "state.parquet")
