"""The snapshots of several small pipelines in one Spark job.

A job, its tasks and their processes cost more than the events of a small pipeline. So the subtasks of all pipelines
whose events the subtasks read themselves are divided among a few tasks of one job. A pipeline whose events Spark has to
move has a job of its own in the same session. The snapshot of each pipeline is planned, declined and published on its
own."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from statelib import __version__
from statelib.definition.columns import event_schema
from statelib.definition.pipeline import Pipeline
from statelib.errors import ConflictError, StatelibError
from statelib.flows.checkpoint.declining import declining
from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan, plan_snapshot
from statelib.flows.wiring import Deployment, log_settings, now_ms
from statelib.model.checkpoint import SubtaskReport
from statelib.model.ids import CheckpointId
from statelib.model.task_error import TaskError, noting_task_error, task_error_in
from statelib.spark.session.either_kind import cores
from statelib.spark.session.job_failures import OF_SPARK, as_own, failed_task
from statelib.spark.snapshot.deadline import until
from statelib.spark.snapshot.driver import Batches, Task, check_version, own_task, read_back, run_planned
from statelib.spark.snapshot.subtask.worker import Work
from statelib.telemetry.logs import LogSettings, bound, configure, configured

_RESULT = "result binary"
Clock = Callable[[], int]
Result = SubtaskReport | TaskError


@dataclass(frozen=True)
class Member:
    """A pipeline of a group, and the snapshot that ``begin`` allocated for it."""

    pipeline: Pipeline
    checkpoint_id: CheckpointId


@dataclass(frozen=True)
class _Shared:
    """A planned snapshot whose subtasks run in the job of the group."""

    pipeline: Pipeline
    plan: SnapshotPlan
    events: int
    task: Task[SubtaskReport]


def run_group(
    spark: SparkSession, deployment: Deployment, members: Sequence[Member], clock: Clock = now_ms
) -> dict[str, Exception]:
    """Take the snapshots of the members and publish their metadata. Return the errors of those that failed, by the
    names of their pipelines; a failure does not stop the others.

    What an earlier attempt has published is not taken again. ``clock``: as for
    :func:`~statelib.spark.snapshot.driver.run_snapshot`."""
    errors: dict[str, Exception] = {}
    shared: list[_Shared] = []
    for member in members:
        with _collected(errors, member.pipeline, member.checkpoint_id):
            plan = plan_snapshot(deployment, member.pipeline, member.checkpoint_id)
            if plan is None:
                continue
            with declining(deployment, plan):
                own = own_task(spark, Work(deployment.for_workers(), member.pipeline, plan))
            if own is None:
                run_planned(spark, deployment, member.pipeline, plan, clock=clock)
            else:
                shared.append(_Shared(member.pipeline, plan, *own))
    results = _results(spark, shared, clock) if shared else []
    for each, result in zip(shared, results, strict=True):
        with _collected(errors, each.pipeline, each.plan.record.checkpoint_id):
            if result is None:  # the job failed as a whole: a job of its own shows whose fault it was
                run_planned(spark, deployment, each.pipeline, each.plan, clock=clock)
            else:
                _publish(spark, deployment, each, result)
    return errors


@contextmanager
def _collected(errors: dict[str, Exception], pipeline: Pipeline, number: CheckpointId) -> Iterator[None]:
    """Put an error of statelib or of Spark under the name of the pipeline. Any other error is a bug, and is raised."""
    try:
        with bound(pipeline=pipeline.name, checkpoint_id=number):
            yield
    except (StatelibError, *OF_SPARK) as error:
        errors[pipeline.name] = as_own(error) or error


def _publish(spark: SparkSession, deployment: Deployment, shared: _Shared, results: Sequence[Result]) -> None:
    pipeline, plan = shared.pipeline, shared.plan
    with bound(attempt=plan.attempt), declining(deployment, plan):
        for result in results:
            if isinstance(result, TaskError):
                raise failed_task(result, plan.attempt)
        reports = [result for result in results if isinstance(result, SubtaskReport)]
        check = partial(read_back, spark, deployment, pipeline, plan)
        publish(deployment, pipeline, plan, shared.events, reports, read_back=check)


def _results(spark: SparkSession, group: Sequence[_Shared], clock: Clock) -> Sequence[Sequence[Result] | None]:
    """Run the subtasks of all snapshots in one job; return the results of each snapshot, None for each if the job
    failed as a whole."""
    deadlines = [shared.plan.record.deadline_ms for shared in group]
    limits = [at_ms for at_ms in deadlines if at_ms is not None]
    last_ms = max(limits) if len(limits) == len(deadlines) else None
    units = [(number, s) for number, shared in enumerate(group) for s in range(shared.plan.record.parallelism)]
    tasks = min(cores(spark), len(units))
    one_each = spark.range(0, tasks, 1, tasks).filter("id < 0")
    run = one_each.mapInArrow(_worker([units[n::tasks] for n in range(tasks)], group, configured()), _RESULT)
    results: list[list[Result]] = [[] for _ in group]
    try:
        with until(spark, f"group {group[0].plan.attempt}", last_ms, clock):
            rows = run.collect()
    except (ConflictError, *OF_SPARK):  # the last deadline has passed, or a worker was lost
        return [None] * len(group)
    for row in rows:
        number, result = pickle.loads(row.result)  # noqa: S301 - from this very job's own tasks
        results[number].append(result)
    return [sorted(each, key=lambda result: result.subtask) for each in results]


def _worker(
    shares: Sequence[Sequence[tuple[int, int]]], group: Sequence[_Shared], logs: LogSettings | None
) -> Callable[[Batches], Batches]:
    """Return the function of a Spark task: it runs its share of (number of the snapshot, subtask) one after another."""
    work = [(shared.task, shared.plan.attempt, event_schema(shared.pipeline)) for shared in group]
    version = __version__

    def run(batches: Batches) -> Batches:
        list(batches)
        if logs is not None:
            configure(replace(logs, secrets=log_settings().secrets))
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a worker runs inside a Spark task only")
        check_version(version)
        for number, subtask in shares[context.partitionId()]:
            task, attempt, columns = work[number]
            result = _result(partial(task, subtask, context.taskAttemptId(), columns.empty_table()), subtask, attempt)
            yield pa.RecordBatch.from_pydict({"result": pa.array([pickle.dumps((number, result))], pa.binary())})

    return run


def _result(task: Callable[[], SubtaskReport], subtask: int, attempt: str) -> Result:
    """Return the report of a subtask or its error. Spark would repeat the share of all pipelines after an error."""
    try:
        with noting_task_error(attempt, subtask):
            return task()
    except Exception as error:  # noqa: BLE001 - a user's function may raise anything
        return task_error_in(error, attempt) or TaskError.of(error, subtask)
