"""The rehearsal of a restore in Spark, at a chosen parallelism. It changes nothing."""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import SparkSession

from statelib.definition.pipeline import Pipeline
from statelib.flows.restore.layout import RestoreLayout
from statelib.flows.restore.live_state import rehearse_subtask
from statelib.flows.restore.steps import rehearsal_layout
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import EventCounts, SubtaskReport
from statelib.model.ids import AttemptId
from statelib.spark.snapshot.driver import run_subtasks
from statelib.spark.snapshot.subtask.worker import task_attempt
from statelib.storage.registry import new_attempt


def rehearse(
    spark: SparkSession, deployment: Deployment, pipeline: Pipeline, checkpoint: str, parallelism: int | None
) -> list[SubtaskReport]:
    """Restore the key groups of each subtask, check that all entries have the counts and digests in the manifest, and
    return one report per subtask. ``checkpoint``: the id of the checkpoint. ``parallelism``: None stands for that of
    the checkpoint.

    Raises CorruptStateError (``restore-mismatch``, and the kinds of damaged files)."""
    layout = rehearsal_layout(deployment, pipeline, checkpoint, parallelism)
    attempt = new_attempt()
    task = _task(deployment.for_workers(), pipeline, layout, attempt)
    return run_subtasks(spark, pipeline, len(layout.ranges), None, task, attempt=attempt)


def _task(
    deployment: Deployment, pipeline: Pipeline, layout: RestoreLayout, rehearsal: AttemptId
) -> Callable[[int, int, pa.Table], SubtaskReport]:
    def restore(subtask: int, task: int, _: pa.Table) -> SubtaskReport:
        attempt = task_attempt(rehearsal, task)
        return SubtaskReport(
            subtask=subtask,
            key_group_range=layout.ranges[subtask],
            keyed=None,
            files=(),
            statistics=rehearse_subtask(pipeline, deployment, layout, subtask, attempt),
            events=EventCounts(0, 0, 0),
            restored_from="remote" if layout.sources[subtask] else "empty",
            sync_ms=0,
            async_ms=0,
        )

    return restore
