"""The driver's part: move every event to the subtask that owns its key group, collect the acknowledgements.

Events cross from the JVM to Python once, at their owner; before that their keys alone do, to learn
which subtask that is. Each subtask gets a marker row, so that one without events still acknowledges.
"""

import pickle
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf

from statelib.definition.columns import event_schema, key_array
from statelib.definition.pipeline import Pipeline
from statelib.flows.snapshot import SnapshotPlan, plan_snapshot, publish
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SubtaskReport
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import subtask_of
from statelib.serializers.keys import key_groups
from statelib.spark.source import read_interval
from statelib.spark.worker import Work, snapshot_subtask

SUBTASK = "__statelib_subtask"
MARKER = "__statelib_marker"

Batches = Iterable[pa.RecordBatch]


def run_snapshot(
    spark: SparkSession, deployment: Deployment, pipeline: Pipeline, checkpoint_id: CheckpointId
) -> SnapshotPlan | None:
    """Take the snapshot that ``begin`` allocated and publish its metadata.

    None if an earlier attempt had published already: then there is nothing left to do.
    """
    plan = plan_snapshot(deployment, pipeline, checkpoint_id)
    if plan is None:
        return None
    events, read = None, 0
    if plan.record.interval is not None:
        events = read_interval(spark, pipeline, deployment.data, plan.record.interval)
        read = events.count()
    work = Work(deployment, pipeline, plan)
    reports = run_subtasks(spark, pipeline, plan.record.parallelism, events, _snapshot_task(work))
    publish(deployment, pipeline, plan, read, reports)
    return plan


def run_subtasks(
    spark: SparkSession,
    pipeline: Pipeline,
    parallelism: int,
    events: DataFrame | None,
    task: Callable[[int, int, pa.Table], SubtaskReport],
) -> list[SubtaskReport]:
    """Run ``task(subtask, task attempt id, events)`` once for each subtask, in Spark."""
    rows = _markers(spark, pipeline, parallelism, events)
    owned = rows.repartitionById(parallelism, f.col(SUBTASK))
    collected = owned.mapInArrow(_worker(pipeline, task), "report binary").collect()
    # The bytes come from this very job's own tasks, through Spark's own result channel.
    return [pickle.loads(row.report) for row in collected]  # noqa: S301


def _markers(spark: SparkSession, pipeline: Pipeline, parallelism: int, events: DataFrame | None) -> DataFrame:
    subtasks = spark.range(parallelism, numPartitions=1).select(f.col("id").cast("int").alias(SUBTASK))
    if events is None:
        return subtasks.withColumn(MARKER, f.lit(True))
    # PySpark's types demand the kind of function, PySpark itself warns when it is given.
    owner = arrow_udf(_owner(pipeline, parallelism), "int")  # type: ignore[call-overload]
    keys = [f.col(f"`{name}`") for name in pipeline.key]
    assigned = events.withColumns({SUBTASK: owner(*keys), MARKER: f.lit(False)})
    nothing = [f.lit(None).cast(field.dataType).alias(field.name) for field in events.schema.fields]
    markers = subtasks.select(*nothing, f.col(SUBTASK), f.lit(True).alias(MARKER))
    return assigned.unionByName(markers)


def _owner(pipeline: Pipeline, parallelism: int) -> Callable[..., pa.Array]:
    """Key columns to the subtask that owns each row; rows without a key go to subtask 0, which counts them."""
    schema = pipeline.schema()
    wanted = pa.schema([event_schema(pipeline).field(name) for name in pipeline.key])

    def owner(*columns: pa.Array) -> pa.Array:
        table = pa.table(list(columns), names=wanted.names).cast(wanted)
        valid = np.ones(len(table), bool)
        for name in wanted.names:
            valid &= pc.is_valid(table[name]).to_numpy()
        subtasks = np.zeros(len(table), np.int32)
        if valid.any():
            keys = key_array(pipeline, table.filter(pa.array(valid)))
            subtasks[valid] = subtask_of(key_groups(schema, keys), parallelism, schema.max_parallelism)
        return pa.array(subtasks)

    return owner


def _worker(pipeline: Pipeline, task: Callable[[int, int, pa.Table], SubtaskReport]) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a worker runs inside a Spark task only")
        events = _events(pipeline, list(batches))
        report = task(context.partitionId(), context.taskAttemptId(), events)
        yield pa.RecordBatch.from_pydict({"report": pa.array([pickle.dumps(report)], pa.binary())})

    return run


def _events(pipeline: Pipeline, batches: list[pa.RecordBatch]) -> pa.Table:
    """The batches of a subtask without its marker row, in the declared types."""
    wanted = event_schema(pipeline)
    if not batches or wanted.names != [n for n in batches[0].schema.names if n not in (SUBTASK, MARKER)]:
        return wanted.empty_table()
    table = pa.Table.from_batches(batches)
    kept = table.filter(pc.invert(table[MARKER]))
    return kept.select(wanted.names).cast(wanted)


def _snapshot_task(work: Work) -> Callable[[int, int, pa.Table], SubtaskReport]:
    return lambda subtask, task, events: snapshot_subtask(work, subtask, task, events)
