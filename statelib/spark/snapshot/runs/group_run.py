"""A whole run of a group in one process for the command line: each pipeline begins, is checked and is registered on its
own, and all snapshots are taken together."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from statelib.definition.pipeline import Pipeline
from statelib.errors import StatelibError
from statelib.flows.checkpoint.steps import Begun, abort, begin, check, register
from statelib.flows.publication.steps import publish_tables
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.failure import CheckpointFailureReason
from statelib.model.record import CheckpointRecord
from statelib.spark.snapshot.group import Member, run_group
from statelib.spark.snapshot.runs.whole_run import Step


@dataclass
class GroupResult:
    """The results of a run, by the names of the pipelines. ``completed``: the checkpoints, and whether each was
    completed before the run."""

    completed: dict[str, tuple[CheckpointRecord, bool]] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)


def run_group_interval(
    spark: SparkSession,
    deployment: Deployment,
    intervals: Mapping[Pipeline, DataInterval],
    *,
    owner: str,
    step: Step,
    assume_ready: bool = False,
) -> GroupResult:
    """Run one data interval of each pipeline. A pipeline that fails is aborted and does not stop the others.

    The steps are those of :func:`~statelib.spark.snapshot.runs.whole_run.run_interval`."""
    result, begun = GroupResult(), dict[Pipeline, Begun]()
    step("begin")
    for pipeline, interval in intervals.items():
        with _collected(result, pipeline):
            begun[pipeline] = begin(deployment, pipeline, interval, owner, assume_ready=assume_ready)
    with _aborted_at_exit(deployment, begun, result):
        step("snapshot")
        new = {pipeline: each for pipeline, each in begun.items() if not each.already_completed}
        result.errors |= run_group(spark, deployment, [Member(p, each.checkpoint_id) for p, each in new.items()])
        step("register")
        for pipeline, each in begun.items():
            if pipeline.name not in result.errors:
                with _collected(result, pipeline):
                    _register(deployment, pipeline, each, result)
    return result


def _register(deployment: Deployment, pipeline: Pipeline, begun: Begun, result: GroupResult) -> None:
    """Check and register a checkpoint, and publish the tables of its pipeline."""
    if begun.already_completed:
        record = deployment.catalog().get(pipeline.name, begun.checkpoint_id)
    else:
        report = check(deployment, pipeline, begun.checkpoint_id)
        record = register(deployment, pipeline, begun.checkpoint_id, report.report_uri)
    result.completed[pipeline.name] = record, begun.already_completed
    if pipeline.publish:
        publish_tables(deployment, pipeline)


@contextmanager
def _collected(result: GroupResult, pipeline: Pipeline) -> Iterator[None]:
    try:
        yield
    except StatelibError as error:
        result.errors[pipeline.name] = error


@contextmanager
def _aborted_at_exit(deployment: Deployment, begun: Mapping[Pipeline, Begun], result: GroupResult) -> Iterator[None]:
    """Abort the checkpoints that the block leaves without a registration, for the reason of each."""
    stopped = True
    try:
        yield
        stopped = False
    finally:
        for pipeline, each in begun.items():
            if each.already_completed or pipeline.name in result.completed:
                continue
            reason = CheckpointFailureReason.TASK_FAILURE
            if stopped and pipeline.name not in result.errors:
                reason = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
            error = result.errors.get(pipeline.name, "the run of its group was stopped")
            why = error.message if isinstance(error, StatelibError) else str(error)
            abort(deployment, pipeline.name, each.checkpoint_id, why, reason)
