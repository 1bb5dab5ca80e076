"""A run from begin to register in one process: what the DAG's tasks do one by one, for the command line."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.steps import Begun, abort, begin, check, register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointRecord
from statelib.model.termination import StopMode
from statelib.spark.session.job_failures import as_own
from statelib.spark.snapshot.driver import run_snapshot
from statelib.storage.registry import new_attempt

Step = Callable[[str], None]
"""Is told the name of each step when it begins."""


def run_interval(
    spark: SparkSession,
    deployment: Deployment,
    pipeline: Pipeline,
    interval: DataInterval,
    *,
    owner: str,
    step: Step,
    assume_ready: bool = False,
) -> tuple[CheckpointRecord, bool]:
    """The completed checkpoint of one data interval, and whether it was there already.

    Raises as the flows do, each error of a Spark task as statelib's own; whatever fails is aborted."""
    step("begin")
    begun = begin(deployment, pipeline, interval, owner, assume_ready=assume_ready)
    return _finished(spark, deployment, pipeline, begun, step), begun.already_completed


def take_savepoint(
    spark: SparkSession,
    deployment: Deployment,
    pipeline: Pipeline,
    *,
    form: str,
    target: str | None,
    note: str,
    owner: str,
    step: Step,
    stop: StopMode | None = None,
) -> CheckpointRecord:
    """Return a completed savepoint of the pipeline's present state. ``stop``: as in :func:`begin_savepoint`.

    Raises as :func:`run_interval`; a pipeline that was to be stopped goes on then."""
    step("begin")
    key = new_attempt()
    begun = begin_savepoint(
        deployment, pipeline, format=form, target=target, note=note, owner=owner, key=key, stop=stop
    )
    return _finished(spark, deployment, pipeline, begun, step)


def _finished(
    spark: SparkSession, deployment: Deployment, pipeline: Pipeline, begun: Begun, step: Step
) -> CheckpointRecord:
    number = begun.checkpoint_id
    if begun.already_completed:
        return deployment.catalog().get(PipelineName(pipeline.name), number)
    reason = CheckpointFailureReason.TASK_FAILURE
    try:
        step("snapshot")
        run_snapshot(spark, deployment, pipeline, number)
        reason = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE
        step("check_completeness")
        report = check(deployment, pipeline, number)
        step("register")
        return register(deployment, pipeline, number, report.report_uri)
    except (KeyboardInterrupt, SystemExit):
        stopped = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
        abort(deployment, pipeline.name, number, "stopped by its user", stopped)
        raise
    except Exception as error:
        told = as_own(error)
        abort(deployment, pipeline.name, number, str(told or error), reason)
        if told is None or told is error:
            raise
        raise told from error
