"""The choice of the subtasks that may read only the entries that their events touch, or that a correction concerns."""

from collections.abc import Sequence

from statelib.definition.checks.checkpoint.touched import parts_that_need_all
from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.blind import reason_to_materialise
from statelib.flows.restore.layout import RestoreLayout
from statelib.model.checkpoint import SnapshotKind
from statelib.model.choices import Backend, Strategy
from statelib.model.record import CheckpointRecord
from statelib.restore.live.logged import logged_database
from statelib.snapshots.uploads.previous import PreviousSnapshot


def reasons_to_read_all(
    pipeline: Pipeline, record: CheckpointRecord, layout: RestoreLayout, previous: Sequence[PreviousSnapshot]
) -> tuple[str, ...]:
    """Return the reason of each subtask for which it has to read its state as a whole, '' if there is none."""
    reason = _reason_of_all(pipeline, record)
    if reason:
        return (reason,) * record.parallelism
    return tuple(_reason(pipeline, layout, subtask, files) for subtask, files in enumerate(previous))


def _reason_of_all(pipeline: Pipeline, record: CheckpointRecord) -> str:
    settings = pipeline.checkpoint
    if settings.reads == "whole":
        return "checkpoint.reads is whole"
    if record.kind is not SnapshotKind.CHECKPOINT or (record.interval is None and record.mends is None):
        return "it is not the checkpoint of an interval"
    if pipeline.backend != Backend.ROCKSDB or record.strategy != Strategy.CHANGELOG:
        return "reading single entries needs backend: rocksdb and checkpoint.strategy: changelog"
    if settings.local_recovery:
        return "local_recovery makes copies of the whole state"
    return next((f"all entries are needed for {part}" for part in parts_that_need_all(pipeline)), "")


def _reason(pipeline: Pipeline, layout: RestoreLayout, subtask: int, previous: PreviousSnapshot) -> str:
    sources = layout.sources[subtask]
    logged = logged_database(layout.schema, layout.ranges[subtask], sources)
    if logged is None or previous.changelog is None:
        return "the base is no change log of these key groups and states that this run can continue"
    return reason_to_materialise(pipeline.checkpoint, logged.handle)
