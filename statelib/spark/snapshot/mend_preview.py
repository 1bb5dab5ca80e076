"""The preview of a correction in Spark: the entries that it would change. Nothing is written."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from statelib.backends.wrappers.written_keys import WrittenKeys
from statelib.definition.columns import keyed_events
from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.snapshot_plan import plan_preview
from statelib.flows.mending.differences import Differences, StateDifferences
from statelib.flows.mending.plan import MendPlan
from statelib.flows.mending.steps import preview_record
from statelib.flows.wiring import Deployment, now_ms
from statelib.formats.text.plain_text import texts
from statelib.functions.mending.mended_state import MendedState
from statelib.functions.state_function import Progress
from statelib.model.checkpoint import EventCounts
from statelib.model.state import KeyedStateSchema
from statelib.savepoints.diff.changes import WORDS, ChangeKind
from statelib.serializers.entries.keys import KEY_COLUMNS, key_columns
from statelib.spark.events.tables.incremental import TableReads
from statelib.spark.session.job_failures import naming_what_failed
from statelib.spark.snapshot.driver import run_on_events
from statelib.spark.snapshot.subtask.kept_deltas import folded, mended_states, touched_keys
from statelib.spark.snapshot.subtask.operator_state import restored_operator
from statelib.spark.snapshot.subtask.restored import restored_state
from statelib.spark.snapshot.subtask.worker import Work, task_attempt

SAMPLED_ROWS = 5
"""The most differing entries per state that a preview has."""


@dataclass(frozen=True)
class _Part:
    """The changes by one subtask."""

    events: EventCounts
    states: tuple[StateDifferences, ...]


def preview_mend(spark: SparkSession, deployment: Deployment, pipeline: Pipeline, plan: MendPlan) -> Differences:
    """Return the changes that a correction would make: the present state is restored, corrected and discarded.

    Raises as the snapshot of a correction does."""
    record = preview_record(deployment, pipeline, plan)
    work = Work(deployment.for_workers(), pipeline, plan_preview(deployment, pipeline, record))
    no_reads = TableReads({}, work.plan.attempt)
    with naming_what_failed():
        _, parts = run_on_events(spark, work, partial(_preview_subtask, work), reads=no_reads)
    states = zip(*(part.states for part in parts), strict=True)
    return Differences(sum(part.events.applied for part in parts), tuple(map(_joined, states)))


def _preview_subtask(work: Work, subtask: int, task: int, events: pa.Table) -> _Part:
    plan, pipeline = work.plan, work.pipeline
    assert plan.keeps is not None, "a correction keeps the delta of its interval"
    operator = restored_operator(pipeline, plan, subtask)
    keyed, null_keys = keyed_events(pipeline, events)
    progress = Progress(plan.position.watermark_ms, plan.position.watermark_ms)
    with restored_state(
        work.deployment,
        pipeline,
        plan,
        plan.layout,
        subtask,
        attempt=task_attempt(plan.attempt, task),
        keys=lambda: touched_keys(pipeline, plan, subtask, keyed),
        clock=now_ms,
    ) as restored:
        written = WrittenKeys(restored.backend)
        _, deltas = folded(pipeline, written, keyed, progress, operator)
        mended = mended_states(written, deltas, operator, interval=plan.keeps, later=plan.later)
        states = tuple(_differences(pipeline, written.schema, each) for each in mended)
    return _Part(EventCounts(len(events), len(keyed), null_keys), states)


def _differences(pipeline: Pipeline, schema: KeyedStateSchema, mended: MendedState) -> StateDifferences:
    descriptor = mended.delta.descriptor
    existed, exists = (
        np.asarray(each.is_valid().to_numpy(zero_copy_only=False), np.bool_) for each in (mended.now, mended.after)
    )
    kinds = np.where(existed & exists, ChangeKind.CHANGED, np.where(exists, ChangeKind.ADDED, ChangeKind.REMOVED))
    numbers = np.bincount(kinds, minlength=len(WORDS)).tolist()
    rows = min(SAMPLED_ROWS, len(kinds))
    columns = key_columns(schema, descriptor, mended.keys.slice(0, rows), KEY_COLUMNS)
    if len(pipeline.key) > 1:
        columns["key"] = pa.StructArray.from_arrays(columns["key"].flatten(), names=list(pipeline.key))
    shown = {name: texts(column) for name, column in columns.items()}
    shown["change"] = [WORDS[kind] for kind in kinds[:rows]]
    shown |= {"before": texts(mended.now[:rows]), "after": texts(mended.after[:rows])}
    sample = tuple(dict(zip(shown, row, strict=True)) for row in zip(*shown.values(), strict=True))
    return StateDifferences(descriptor.name, dict(zip(WORDS, numbers, strict=True)), sample)


def _joined(parts: tuple[StateDifferences, ...]) -> StateDifferences:
    counts = {word: sum(part.counts[word] for part in parts) for word in WORDS}
    sample = [entry for part in parts for entry in part.sample]
    return StateDifferences(parts[0].state, counts, tuple(sample[:SAMPLED_ROWS]))
