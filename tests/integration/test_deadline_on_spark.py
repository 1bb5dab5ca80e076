"""A deadline in a real Spark: the jobs of the checkpoint end, the checkpoint is aborted, and the session can be used
further."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from statelib.errors import ConflictError
from statelib.flows.checkpoint.steps import begin
from statelib.model.checkpoint import SubtaskReport
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState
from statelib.spark.snapshot.deadline import until
from statelib.spark.snapshot.driver import run_snapshot, run_subtasks
from tests.support.worlds import day, new_deployment

NAME = "route_delays"


def test_tasks_that_would_never_end_are_cancelled_at_the_deadline(
    spark: SparkSession, tmp_path: Path, data: Path
) -> None:
    pipeline = new_deployment(tmp_path, data).pipeline(NAME)

    def stuck(_subtask: int, _task: int, _events: pa.Table) -> SubtaskReport:
        time.sleep(3600)
        raise AssertionError

    with pytest.raises(ConflictError) as refusal, until(spark, "stuck", 1_500, lambda: 0):
        run_subtasks(spark, pipeline, 2, None, stuck)
    assert refusal.value.kind == "checkpoint-expired"
    assert spark.range(3).count() == 3, "later jobs are not in the cancelled group"
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_other_failures_are_raised_unchanged(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="mine"), until(spark, "g", 10**9, lambda: 0):
        raise ValueError("mine")
    with until(spark, "g", None, lambda: 0):
        assert spark.range(2).count() == 2


def test_an_expired_checkpoint_is_aborted_by_the_driver(spark: SparkSession, tmp_path: Path, data: Path) -> None:
    deployment = new_deployment(tmp_path, data)
    pipeline = deployment.pipeline(NAME)
    checkpoint_id = begin(deployment, pipeline, day(1), "test").checkpoint_id
    with pytest.raises(ConflictError) as refusal:
        run_snapshot(spark, deployment, pipeline, checkpoint_id, clock=lambda: 10**15)
    assert refusal.value.kind == "checkpoint-expired"
    record = deployment.catalog().get(PipelineName(NAME), checkpoint_id)
    assert (record.state, record.failure) == (CheckpointState.ABORTED, CheckpointFailureReason.CHECKPOINT_EXPIRED)
    assert not list(Path(deployment.storage_root).rglob("_metadata"))
    again = begin(deployment, pipeline, day(1), "test").checkpoint_id
    assert run_snapshot(spark, deployment, pipeline, again) is not None


def test_the_failure_of_a_subtasks_snapshot_is_recorded(spark: SparkSession, tmp_path: Path, data: Path) -> None:
    """The storage loses the checkpoint's directory: the subtask cannot write, and the driver receives the reason."""
    deployment = new_deployment(tmp_path, data)
    pipeline = deployment.pipeline(NAME)
    pipeline = pipeline.model_copy(
        update={"checkpoint": pipeline.checkpoint.model_copy(update={"inline_threshold_bytes": 0})}
    )
    checkpoint_id = begin(deployment, pipeline, day(1), "test").checkpoint_id
    (Path(deployment.storage_root) / NAME / f"chk-{checkpoint_id}").rmdir()
    with pytest.raises(Exception, match="declined the checkpoint"):
        run_snapshot(spark, deployment, pipeline, checkpoint_id)
    noted = deployment.catalog().get(PipelineName(NAME), checkpoint_id)
    assert (noted.state, noted.failure) == (
        CheckpointState.PENDING,
        CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION,
    )
    assert "declined the checkpoint, CHECKPOINT_ASYNC_EXCEPTION: " in noted.reason
    assert "\n" not in noted.reason
