"""The preview of a correction in Spark: the entries that it would change. Nothing is written."""

from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from statelib.backends.written_keys import WrittenKeys
from statelib.definition.columns import keyed_events
from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.snapshot_plan import plan_preview
from statelib.flows.mending.plan import MendPlan
from statelib.flows.mending.steps import preview_record
from statelib.flows.restore.live_state import live_backend
from statelib.flows.wiring import Deployment
from statelib.functions.mending.mended_state import MendedState
from statelib.functions.state_function import Progress
from statelib.model.checkpoint import EventCounts
from statelib.model.state import KeyedStateSchema
from statelib.restore.changes import WORDS, ChangeKind
from statelib.serializers.entries.keys import KEY_COLUMNS, key_columns
from statelib.spark.events.tables.incremental import TableReads
from statelib.spark.session.job_failures import naming_what_failed
from statelib.spark.snapshot.driver import run_on_events
from statelib.spark.snapshot.kept_deltas import mended_states
from statelib.spark.snapshot.operator_state import restored_operator
from statelib.spark.snapshot.worker import Work, task_attempt

SAMPLED_ROWS = 5
"""The most differing entries per state and subtask that a preview has."""


@dataclass(frozen=True)
class StateDifferences:
    """The changes of one state. ``counts``: the number of entries per kind of change, by its word. ``sample``: some of
    them, with the columns of the key, ``change``, ``before`` and ``after``."""

    state: str
    counts: Counter[str]
    sample: pa.Table


@dataclass(frozen=True)
class Preview:
    """The changes by one subtask, or by all of them."""

    events: EventCounts
    states: tuple[StateDifferences, ...]


def preview_mend(spark: SparkSession, deployment: Deployment, pipeline: Pipeline, plan: MendPlan) -> Preview:
    """Return the changes that a correction would make: the present state is restored, corrected and discarded.

    Raises as the snapshot of a correction does."""
    record = preview_record(deployment, pipeline, plan)
    work = Work(deployment.for_workers(), pipeline, plan_preview(deployment, pipeline, record))
    no_reads = TableReads({}, work.plan.attempt)
    with naming_what_failed():
        read, parts = run_on_events(spark, work, partial(_preview_subtask, work), reads=no_reads)
    applied, null_key = (sum(getattr(part.events, name) for part in parts) for name in ("applied", "null_key"))
    states = zip(*(part.states for part in parts), strict=True)
    return Preview(EventCounts(read, applied, null_key), tuple(map(_joined, states)))


def _preview_subtask(work: Work, subtask: int, task: int, events: pa.Table) -> Preview:
    plan, pipeline = work.plan, work.pipeline
    assert plan.keeps is not None, "a correction keeps the delta of its interval"
    operator = restored_operator(pipeline, plan, subtask)
    keyed, null_keys = keyed_events(pipeline, events)
    progress = Progress(plan.position.watermark_ms, plan.position.watermark_ms)
    attempt = task_attempt(plan.attempt, task)
    with live_backend(pipeline, work.deployment, plan.layout, subtask, attempt) as backend:
        mended = mended_states(
            pipeline, WrittenKeys(backend), keyed, progress, operator, interval=plan.keeps, later=plan.later
        )
        states = tuple(_differences(backend.schema, each) for each in mended)
    return Preview(EventCounts(len(events), len(keyed), null_keys), states)


def _differences(schema: KeyedStateSchema, mended: MendedState) -> StateDifferences:
    descriptor = mended.delta.descriptor
    existed, exists = (
        np.asarray(each.is_valid().to_numpy(zero_copy_only=False), np.bool_) for each in (mended.now, mended.after)
    )
    kinds = np.where(existed & exists, ChangeKind.CHANGED, np.where(exists, ChangeKind.ADDED, ChangeKind.REMOVED))
    words = pa.array(WORDS).take(pa.array(kinds.astype(np.int8)))
    rows = slice(0, SAMPLED_ROWS)
    keys = key_columns(schema, descriptor, mended.keys.slice(0, min(SAMPLED_ROWS, len(mended.keys))), KEY_COLUMNS)
    sample = pa.table({**keys, "change": words[rows], "before": mended.now[rows], "after": mended.after[rows]})
    return StateDifferences(descriptor.name, Counter(words.to_pylist()), sample)


def _joined(parts: tuple[StateDifferences, ...]) -> StateDifferences:
    counts = sum((part.counts for part in parts), Counter[str]())
    sample = pa.concat_tables([part.sample for part in parts]).slice(0, SAMPLED_ROWS)
    return StateDifferences(parts[0].state, counts, sample)
