"""A whole run in one process for the command line: the same steps, from begin to register, as the tasks of the DAG."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.steps import Begun, abort, begin, check, register
from statelib.flows.mending.plan import MendPlan
from statelib.flows.mending.steps import begin_mend
from statelib.flows.publication.steps import publish_tables
from statelib.flows.savepoint.seeds import begin_seed
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.failure import CheckpointFailureReason
from statelib.model.record import CheckpointRecord
from statelib.model.termination import StopMode
from statelib.spark.session.job_failures import as_own
from statelib.spark.snapshot.driver import run_snapshot
from statelib.spark.snapshot.seed import Seed
from statelib.storage.registry import new_attempt

Step = Callable[[str], None]
"""A function that is called with the name of each step when the step begins."""


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
    """Run one data interval and publish its checkpoint; return (completed checkpoint, whether it was completed before
    this call).

    Raises the errors of the flows; an error in a Spark task is raised as an error of statelib. After an error before it
    is registered, the checkpoint is aborted."""
    step("begin")
    begun = begin(deployment, pipeline, interval, owner, assume_ready=assume_ready)
    record = _finished(spark, deployment, pipeline, begun, step)
    if pipeline.publish:
        step("publish")
        publish_tables(deployment, pipeline)
    return record, begun.already_completed


def mend_interval(
    spark: SparkSession, deployment: Deployment, pipeline: Pipeline, plan: MendPlan, *, owner: str, step: Step
) -> CheckpointRecord:
    """Correct the interval of a plan and publish the checkpoint; return the completed checkpoint.

    Raises as :func:`~statelib.flows.mending.steps.begin_mend` and :func:`run_interval` do."""
    step("begin")
    record = _finished(spark, deployment, pipeline, begin_mend(deployment, pipeline, plan, owner), step)
    if pipeline.publish:
        step("publish")
        publish_tables(deployment, pipeline)
    return record


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

    Raises as :func:`run_interval` does. After an error, the pipeline is not stopped."""
    step("begin")
    key = new_attempt()
    begun = begin_savepoint(
        deployment, pipeline, format=form, target=target, note=note, owner=owner, key=key, stop=stop
    )
    return _finished(spark, deployment, pipeline, begun, step)


def seed_pipeline(
    spark: SparkSession,
    deployment: Deployment,
    pipeline: Pipeline,
    seed: Seed,
    until_ms: int,
    *,
    owner: str,
    step: Step,
) -> tuple[CheckpointRecord, bool]:
    """Make the state of ``seed`` the first checkpoint of a pipeline, which has all events before ``until_ms``. Return
    (completed checkpoint, whether it was completed before this call).

    Raises as :func:`~statelib.flows.savepoint.seeds.begin_seed` and :func:`run_interval`."""
    step("begin")
    begun = begin_seed(deployment, pipeline, until_ms, seed.text, owner)
    record = _finished(spark, deployment, pipeline, begun, step, seed=seed)
    if pipeline.publish:
        step("publish")
        publish_tables(deployment, pipeline)
    return record, begun.already_completed


def _finished(
    spark: SparkSession,
    deployment: Deployment,
    pipeline: Pipeline,
    begun: Begun,
    step: Step,
    *,
    seed: Seed | None = None,
) -> CheckpointRecord:
    number = begun.checkpoint_id
    if begun.already_completed:
        return deployment.catalog().get(pipeline.name, number)
    reason = CheckpointFailureReason.TASK_FAILURE
    try:
        step("snapshot")
        run_snapshot(spark, deployment, pipeline, number, seed=seed)
        reason = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE
        step("check_completeness")
        report = check(deployment, pipeline, number, source=seed.snapshot if seed else None)
        step("register")
        return register(deployment, pipeline, number, report.report_uri)
    except (KeyboardInterrupt, SystemExit):
        stopped = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
        abort(deployment, pipeline.name, number, "stopped by its user", stopped)
        raise
    except Exception as error:
        own_error = as_own(error)
        abort(deployment, pipeline.name, number, own_error.message if own_error else str(error), reason)
        if own_error is None or own_error is error:
            raise
        raise own_error from error
