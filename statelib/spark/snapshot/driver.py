"""The driver's part of a checkpoint: it brings each event to the subtask that owns its key group, and collects the
acknowledgements.

If it is cheaper, each subtask reads a source itself (``spark.events.source_files``). Otherwise Spark moves its
events, which are sent from the JVM to Python once, in the task of their owner. To compute the owner, keys may be sent
to Python before that (``spark.events.owners``). A subtask without events also runs and acknowledges."""

import logging
import pickle
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from statelib import __version__
from statelib.aggregates.grouping import one_array
from statelib.definition.columns import as_declared, event_schema
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.declining import declining
from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan, plan_snapshot
from statelib.flows.gate.rehearsing import layout_for_job
from statelib.flows.gate.shares import shares_of
from statelib.flows.restore.live_state import rehearse_subtask
from statelib.flows.wiring import Deployment, log_settings, now_ms
from statelib.model.checkpoint import CheckpointManifest, EventCounts, SubtaskReport
from statelib.model.ids import AttemptId, CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import StateStatistics
from statelib.model.task_error import noting_task_error, raising_task_errors
from statelib.savepoints.opened import Checkpoint
from statelib.spark.events.owners import owner
from statelib.spark.events.source import SourcePlaces, files_of_interval, read_interval
from statelib.spark.events.source_files import SourceFiles, own_events
from statelib.spark.events.tables.incremental import TableReads, table_reads
from statelib.spark.session.either_kind import observed
from statelib.spark.session.job_failures import naming_what_failed
from statelib.spark.snapshot.deadline import until
from statelib.spark.snapshot.seed import Seed
from statelib.spark.snapshot.subtask.interval_events import Change
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask, task_attempt
from statelib.storage.registry import new_attempt
from statelib.telemetry.logs import LogSettings, bound, configure, configured

Batches = Iterable[pa.RecordBatch]
Clock = Callable[[], int]
Worker = Callable[[Batches], Batches]


class Report(Protocol):
    """The result of a task, which can be pickled."""

    @property
    def events(self) -> EventCounts:
        """The numbers of events of the subtask."""
        ...


R = TypeVar("R", bound=Report)
Task = Callable[[int, int, pa.Table], R]
"""A function of (subtask, id of the Spark task, events of the subtask)."""
_REPORT = "report binary"
_READ = "events read"
log = logging.getLogger(__name__)


def run_snapshot(
    spark: SparkSession,
    deployment: Deployment,
    pipeline: Pipeline,
    checkpoint_id: CheckpointId,
    clock: Clock = now_ms,
    *,
    seed: Seed | None = None,
) -> SnapshotPlan | None:
    """Take the snapshot that ``begin`` allocated and publish its metadata.

    Return its plan; None if an earlier attempt has published the metadata already. ``clock``: returns the present time
    in milliseconds since the epoch. ``seed``: where the state comes from, in place of events. Raises ConflictError
    (``checkpoint-expired``) if the deadline passes; the checkpoint is then aborted."""
    with bound(pipeline=pipeline.name, checkpoint_id=checkpoint_id):
        return _snapshot(spark, deployment, pipeline, checkpoint_id, clock=clock, seed=seed)


def _snapshot(
    spark: SparkSession,
    deployment: Deployment,
    pipeline: Pipeline,
    checkpoint_id: CheckpointId,
    *,
    clock: Clock,
    seed: Seed | None,
) -> SnapshotPlan | None:
    text, source = (seed.text, seed.snapshot) if seed else ("", None)
    plan = plan_snapshot(deployment, pipeline, checkpoint_id, seed=text, source=source)
    return None if plan is None else run_planned(spark, deployment, pipeline, plan, clock=clock, seed=seed)


def run_planned(
    spark: SparkSession,
    deployment: Deployment,
    pipeline: Pipeline,
    plan: SnapshotPlan,
    *,
    clock: Clock,
    seed: Seed | None = None,
) -> SnapshotPlan:
    """Take a planned snapshot and publish its metadata. Return the plan. Arguments and errors are those of
    :func:`run_snapshot`."""
    with bound(attempt=plan.attempt), declining(deployment, plan):
        log.info("begun in %s", plan.record.directory)
        with until(spark, f"{pipeline.name} {plan.attempt}", plan.record.deadline_ms, clock), naming_what_failed():
            plan, reads = _with_versions(deployment, pipeline, plan)
            read, reports = _run(spark, deployment, pipeline, plan, reads=reads, seed=seed)
        publish(
            deployment, pipeline, plan, read, reports, read_back=partial(read_back, spark, deployment, pipeline, plan)
        )
        log.info("published: %d events, %d subtasks", read, len(reports))
    return plan


def read_back(
    spark: SparkSession, deployment: Deployment, pipeline: Pipeline, plan: SnapshotPlan, opened: Checkpoint
) -> CheckpointManifest:
    """Read a large checkpoint back by further tasks of this job, each of which reads what others wrote, and restore it
    as a test if that is due. Return its manifest, which says what was done.

    Raises CorruptStateError if the stored bytes or entries are not those that were reported."""
    manifest = opened.manifest
    assert manifest is not None, "a checkpoint that is about to be published has a manifest"
    shares = shares_of(deployment, pipeline, plan.record, opened)
    layout = layout_for_job(deployment, pipeline, plan.record, opened)
    if shares is None and layout is None:
        return manifest
    if shares is not None:
        log.info("reading %d bytes back by %d tasks", shares.reading.size_bytes, shares.number)
    if layout is not None:
        log.info("restoring the checkpoint as a test by %d tasks", len(layout.ranges))
    workers, number = deployment.for_workers(), plan.record.parallelism

    def read(share: int, task: int, _events: pa.Table) -> SubtaskReport:
        written_by = (share - 1) % number
        restored: tuple[StateStatistics, ...] = ()
        if shares is not None:
            shares.read(share, workers.scratch())
        if layout is not None:
            restored = rehearse_subtask(pipeline, workers, layout, written_by, task_attempt(plan.attempt, task))
        return SubtaskReport(written_by, KeyGroupRange(0, -1), None, (), restored, EventCounts(0, 0, 0), "empty", 0, 0)

    with naming_what_failed():
        reports = run_subtasks(spark, pipeline, number, None, read, attempt=plan.attempt)
    restored = {report.subtask: sum(each.total_entries for each in report.statistics) for report in reports}
    rehearsed = () if layout is None else tuple(restored[subtask] for subtask in range(number))
    return replace(manifest, read_by_job=shares is not None, rehearsed=rehearsed)


def _with_versions(deployment: Deployment, pipeline: Pipeline, plan: SnapshotPlan) -> tuple[SnapshotPlan, TableReads]:
    """Return the plan with the versions that it applies of incremental sources, and what is read of them."""
    if plan.record.interval is None or plan.seed:
        return plan, TableReads({}, plan.attempt)
    reads = table_reads(pipeline, deployment.data, plan.record.interval, plan.base_position, plan.attempt)
    return replace(plan, versions=reads.versions(plan.base_position)), reads


def _run(
    spark: SparkSession,
    deployment: Deployment,
    pipeline: Pipeline,
    plan: SnapshotPlan,
    *,
    reads: TableReads,
    seed: Seed | None,
) -> tuple[int, list[SubtaskReport]]:
    """Run the subtasks; return (number of events in the source, reports of the subtasks)."""
    work, record = Work(deployment.for_workers(), pipeline, plan), plan.record
    if seed is not None and seed.rows is not None:
        task = _snapshot_task(work, change=seed.rows.change)
        return _moved(spark, work, seed.rows.frame, task, columns=seed.rows.columns)
    if plan.applies is None or seed is not None:
        task = _snapshot_task(work)
        return 0, run_subtasks(spark, pipeline, record.parallelism, None, task, attempt=plan.attempt)
    return run_on_events(spark, work, _snapshot_task(work), reads=reads)


def run_on_events(spark: SparkSession, work: Work, task: Task[R], *, reads: TableReads) -> tuple[int, list[R]]:
    """Run ``task`` once per subtask on its events of the interval of the plan; return (number of events in the source,
    results of the subtasks). ``reads``: what is read of sources that are read by the commits of their tables."""
    pipeline, plan = work.pipeline, work.plan
    interval, parallelism = plan.applies, plan.record.parallelism
    assert interval is not None, "a snapshot without an interval has no events"
    files = _files(spark, work)
    if files is not None:
        task = _with_own_events(work, files, task)
        if len(files.sources) == len(pipeline.inputs):
            return files.rows, run_subtasks(spark, pipeline, parallelism, None, task, attempt=plan.attempt)
    direct = files or SourceFiles((), ())
    places = SourcePlaces.of(work.deployment)
    events = read_interval(spark, pipeline, places, interval, reads=reads, without=direct.sources)
    moved, reports = _moved(spark, work, events, task, columns=event_schema(pipeline), direct=direct.rows)
    return direct.rows + moved, reports


def _files(spark: SparkSession, work: Work) -> SourceFiles | None:
    plan = work.plan
    assert plan.applies is not None, "a snapshot without an interval has no events"
    places = SourcePlaces.of(work.deployment)
    return files_of_interval(spark, work.pipeline, places, plan.applies, plan.record.parallelism)


def own_task(spark: SparkSession, work: Work) -> tuple[int, Task[SubtaskReport]] | None:
    """Return (number of events, task) of a snapshot whose subtasks read all events themselves, None if Spark has to
    move some. The task expects an empty table of events.

    Raises as :func:`files_of_interval`."""
    if work.plan.applies is None or any(source.incremental for source in work.pipeline.inputs.values()):
        return None
    files = _files(spark, work)
    if files is None or len(files.sources) < len(work.pipeline.inputs):
        return None
    return files.rows, _with_own_events(work, files, _snapshot_task(work))


def _moved(
    spark: SparkSession, work: Work, rows: DataFrame, task: Task[R], *, columns: pa.Schema, direct: int = 0
) -> tuple[int, list[R]]:
    """Run the subtasks on rows that Spark moves to their owners; return (number of these rows, reports). ``direct``:
    the number of events that the subtasks read themselves beside them."""
    plan = work.plan
    counted, observed_in = observed(rows, _READ, f.count(f.lit(1)))
    worker = _worker(columns, task, plan.attempt, configured())
    with raising_task_errors(plan.attempt):
        reports, run = _subtasks(spark, work.pipeline, plan.record.parallelism, counted, worker)
    moved = sum(report.events.read for report in reports) - direct
    # What was observed is too large if Spark ran a task twice.
    return (moved if observed_in(run) == moved else rows.count()), reports


def run_subtasks(
    spark: SparkSession,
    pipeline: Pipeline,
    parallelism: int,
    events: DataFrame | None,
    task: Task[R],
    *,
    columns: pa.Schema | None = None,
    attempt: AttemptId | None = None,
) -> list[R]:
    """Run ``task(subtask, task attempt id, events)`` once per subtask in Spark, and return the reports. If a task
    raises an error of statelib, that error is raised. ``columns``: the columns of ``events``, which include those of
    the key; None stands for the columns that the pipeline declares. ``attempt``: the attempt that marks the errors of
    the tasks; None stands for a new one."""
    wanted, token = event_schema(pipeline) if columns is None else columns, attempt or new_attempt()
    with raising_task_errors(token):
        return _subtasks(spark, pipeline, parallelism, events, _worker(wanted, task, token, configured()))[0]


def _subtasks(
    spark: SparkSession, pipeline: Pipeline, parallelism: int, events: DataFrame | None, worker: Worker
) -> tuple[list[Any], DataFrame]:
    """Run the subtasks; return (reports of the subtasks, DataFrame that was collected for them)."""
    run = (_one_each(spark, parallelism) if events is None else _owned(pipeline, parallelism, events)).mapInArrow(
        worker, _REPORT
    )
    rows = run.collect()
    if not rows and events is not None:  # Spark's optimiser removed the tasks because there are no events
        return _subtasks(spark, pipeline, parallelism, None, worker)
    # The bytes come from this very job's own tasks, through Spark's own result channel.
    return [pickle.loads(row.report) for row in rows], run  # noqa: S301


def _owned(pipeline: Pipeline, parallelism: int, events: DataFrame) -> DataFrame:
    """Return the events with one partition per subtask. Spark also runs a task for a partition without events.

    PySpark's ``mapInArrow`` does not find a column whose name has a dot or a backtick. If there is one, all columns
    have numbers as names until :func:`_events` gives them their own."""
    owned = events.repartitionById(parallelism, owner(pipeline, parallelism))
    if not any(mark in name for name in events.columns for mark in ".`"):
        return owned
    return owned.toDF(*_numbers(len(events.columns)))


def _numbers(count: int) -> list[str]:
    return [f":{number}" for number in range(count)]


def _one_each(spark: SparkSession, parallelism: int) -> DataFrame:
    """Return a DataFrame without rows that has a partition for each subtask. Spark cannot see that it is empty, and so
    does not leave out the partitions."""
    return spark.range(0, parallelism, 1, parallelism).filter("id < 0")


def _worker(wanted: pa.Schema, task: Task[Any], token: str, logs: LogSettings | None) -> Worker:
    version = __version__

    def run(batches: Batches) -> Batches:
        if logs is not None:
            configure(replace(logs, secrets=log_settings().secrets))
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a worker runs inside a Spark task only")
        subtask = context.partitionId()
        with noting_task_error(token, subtask):
            check_version(version)
            report = task(subtask, context.taskAttemptId(), _events(wanted, list(batches)))
        yield pa.RecordBatch.from_pydict({"report": pa.array([pickle.dumps(report)], pa.binary())})

    return run


def check_version(of_driver: str) -> None:
    """Raise InvalidRequestError (``other-version``) if this worker has another version of statelib than the driver."""
    if __version__ != of_driver:
        raise InvalidRequestError(
            f"a Spark worker has statelib {__version__}, its driver has {of_driver}",
            kind="other-version",
            hint="install the same version where the driver runs and on the hosts of the executors; a Spark Connect "
            "server has to start anew only if its own Python environment was replaced",
        )


def _events(wanted: pa.Schema, batches: list[pa.RecordBatch]) -> pa.Table:
    """Return the batches of a subtask as one table in the wanted types."""
    if not batches:
        return wanted.empty_table()
    table = pa.Table.from_batches(batches).combine_chunks()
    if table.column_names == _numbers(len(wanted)):
        table = table.rename_columns(wanted.names)
    return pa.table([as_declared(one_array(table[field.name]), field) for field in wanted], schema=wanted)


def _snapshot_task(work: Work, change: Change | None = None) -> Task[SubtaskReport]:
    """Return the function that a task of a snapshot runs. ``change``: as in :func:`snapshot_subtask`."""

    def task(subtask: int, attempt: int, events: pa.Table) -> SubtaskReport:
        return snapshot_subtask(work, subtask, attempt, events, change=change)

    return task


def _with_own_events(work: Work, files: SourceFiles, task: Task[R]) -> Task[R]:
    """Return ``task`` with the events of the files that each subtask reads itself, beside those that Spark moves to
    it."""

    def run(subtask: int, attempt: int, events: pa.Table) -> R:
        own = own_events(work.pipeline, files, subtask, work.plan.record.parallelism)
        return task(subtask, attempt, pa.concat_tables([own, events]).combine_chunks() if len(events) else own)

    return run
