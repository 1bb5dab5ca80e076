"""What the Spark driver does around its tasks: plan a snapshot, then publish what the tasks acknowledged."""

from collections.abc import Sequence
from dataclasses import dataclass

from statelib.coordinator.acknowledgements import check_acknowledgements
from statelib.coordinator.state_assignment import assign
from statelib.definition.pipeline import Pipeline
from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.flows.opened import Checkpoint, open_checkpoint
from statelib.flows.wiring import Deployment, new_attempt, now_ms
from statelib.formats.manifest import append_manifest, read_checkpoint_file
from statelib.formats.metadata import encode_metadata
from statelib.formats.operator_id import operator_id
from statelib.formats.operator_state import encode_source_position
from statelib.model.checkpoint import (
    CheckpointManifest,
    CheckpointMetadata,
    EventCounts,
    OperatorState,
    OperatorSubtaskState,
    SourcePosition,
    SubtaskReport,
)
from statelib.model.handles import ByteStreamStateHandle, OperatorStreamStateHandle
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange, subtask_ranges
from statelib.model.record import CheckpointRecord, CheckpointState, Owner
from statelib.model.state import KeyedStateSchema, merge_statistics
from statelib.restore.keyed import restored_in_place
from statelib.restore.plan import RestoreSource, refuse_heap_native
from statelib.snapshots.previous import NO_PREVIOUS, PreviousSnapshot, previous_snapshot
from statelib.storage.views import StorageReference

INCREMENTAL = "incremental"
NOTHING_APPLIED = SourcePosition(None, -(2**63))


@dataclass(frozen=True)
class RestoreLayout:
    """Which key groups each subtask owns (``ranges[i]``) and what it restores them from
    (``sources[i]``, empty without a base). Picklable."""

    schema: KeyedStateSchema
    ranges: tuple[KeyGroupRange, ...]
    sources: tuple[tuple[RestoreSource, ...], ...]


@dataclass(frozen=True)
class SnapshotPlan:
    """All that the tasks of one attempt need; picklable."""

    record: CheckpointRecord
    attempt: AttemptId
    layout: RestoreLayout
    base_position: SourcePosition
    previous: tuple[PreviousSnapshot, ...]
    """By subtask: the snapshot whose files it may refer to."""

    @property
    def reference(self) -> StorageReference:
        return StorageReference(self.record.directory)


def plan_snapshot(deployment: Deployment, pipeline: Pipeline, checkpoint_id: CheckpointId) -> SnapshotPlan | None:
    """A new attempt at a pending checkpoint; None if an earlier attempt has published its metadata.

    Raises ConflictError (``not-pending``) if the checkpoint was aborted meanwhile.
    """
    catalog = deployment.catalog()
    name = PipelineName(pipeline.name)
    record = catalog.get(name, checkpoint_id)
    if record.state is CheckpointState.COMPLETED or _is_published(record.directory):
        return None
    if record.state is not CheckpointState.PENDING:
        raise ConflictError(
            f"checkpoint {name}/{checkpoint_id} is {record.state}: {record.reason or 'no reason given'}",
            kind="not-pending",
            hint="clear the DAG run from its first task to begin a new one",
        )
    attempt = new_attempt()
    catalog.record_attempt(name, checkpoint_id, attempt)
    base_record = catalog.get(name, record.base) if record.base is not None else None
    base = None
    if base_record is not None:
        base = open_checkpoint(base_record.directory, own=True, storage_root=deployment.storage_root)
    position = base.position() if base else None
    layout = lay_out(base, record.parallelism, pipeline)
    shared = record.strategy == INCREMENTAL and base_record is not None and _may_be_shared(base_record)
    return SnapshotPlan(
        record=record,
        attempt=attempt,
        layout=layout,
        base_position=position or NOTHING_APPLIED,
        previous=_previous(base if shared else None, layout),
    )


def _may_be_shared(base: CheckpointRecord) -> bool:
    """Files of a user's snapshot may go at any time: the first checkpoint after it is whole by itself (R51)."""
    return base.state is CheckpointState.COMPLETED and base.owner is Owner.SYSTEM


def _previous(base: Checkpoint | None, layout: RestoreLayout) -> tuple[PreviousSnapshot, ...]:
    """A subtask may refer to the base's files if its database is made of them: same key groups, opened as it is."""
    in_place = [restored_in_place(*subtask) for subtask in zip(layout.ranges, layout.sources, strict=True)]
    # A base from outside the storage could be restored, but not be read through one of our checkpoints.
    if base is None or base.allowed_root is None:
        return (NO_PREVIOUS,) * len(in_place)
    checksums = base.checksums() or {}
    return tuple(previous_snapshot(handle, checksums) if handle else NO_PREVIOUS for handle in in_place)


def _is_published(directory: str) -> bool:
    try:
        open_checkpoint(directory)
    except NotFoundError:
        return False
    return True


def lay_out(base: Checkpoint | None, parallelism: int, pipeline: Pipeline) -> RestoreLayout:
    """Give each new subtask those of the base's handles that hold its key groups.

    Raises InvalidRequestError (``max-parallelism-changed``), UnsupportedError (``heap-native``).
    """
    schema, ranges = pipeline.schema(), subtask_ranges(parallelism, pipeline.max_parallelism)
    if base is None:
        return RestoreLayout(schema, ranges, ((),) * parallelism)
    operator = base.keyed_operator()
    if operator.max_parallelism != pipeline.max_parallelism:
        raise InvalidRequestError(
            f"{base.directory} was written with max_parallelism {operator.max_parallelism}, "
            f"pipeline {pipeline.name} has {pipeline.max_parallelism}: key groups cannot be moved between the two",
            kind="max-parallelism-changed",
            hint="set max_parallelism back; it is fixed for the life of a state",
        )
    if pipeline.backend == "rocksdb":
        refuse_heap_native(base.handles())
    handles = [(source.handle.key_group_range, source) for source in base.sources()]
    return RestoreLayout(schema, ranges, assign(handles, parallelism, pipeline.max_parallelism))


def publish(
    deployment: Deployment, pipeline: Pipeline, plan: SnapshotPlan, read: int, reports: Sequence[SubtaskReport]
) -> AttemptId:
    """All subtasks acknowledged: write ``_metadata``, put-if-absent. Returns the attempt that won.

    Raises CorruptStateError if the acknowledgements do not cover every key group exactly once.
    """
    ordered = sorted(reports, key=lambda report: report.subtask)
    check_acknowledgements(ordered, plan.record.parallelism, pipeline.max_parallelism)
    manifest = _manifest(pipeline, plan, read, ordered)
    data = append_manifest(encode_metadata(_metadata(pipeline, plan, manifest.position, ordered)), manifest)
    there = deployment.storage(pipeline).publish_metadata(plan.reference, data)
    if there == data:
        return plan.attempt
    return _other_attempt(plan, there)


def _other_attempt(plan: SnapshotPlan, there: bytes) -> AttemptId:
    """Another attempt at the same checkpoint was first: its result stands, ours is left to gc."""
    _, manifest = read_checkpoint_file(there)
    if manifest is None or (manifest.checkpoint_id, manifest.epoch) != (plan.record.checkpoint_id, plan.record.epoch):
        raise ConflictError(
            f"{plan.record.directory}/_metadata belongs to something else than checkpoint "
            f"{plan.record.checkpoint_id} of epoch {plan.record.epoch}",
            kind="foreign-metadata",
        )
    return manifest.attempt


def _manifest(
    pipeline: Pipeline, plan: SnapshotPlan, read: int, reports: Sequence[SubtaskReport]
) -> CheckpointManifest:
    record, interval = plan.record, plan.record.interval
    position = plan.base_position
    if interval is not None:
        position = SourcePosition(interval, max(interval.end_ms - 1, position.watermark_ms))
    whole = KeyGroupRange(0, pipeline.max_parallelism - 1)
    return CheckpointManifest(
        pipeline=record.pipeline,
        checkpoint_id=record.checkpoint_id,
        kind=record.kind,
        strategy=record.strategy,
        epoch=record.epoch,
        attempt=plan.attempt,
        generation=record.generation,
        base=record.base,
        created_at_ms=now_ms(),
        position=position,
        events=EventCounts(read, sum(r.events.applied for r in reports), sum(r.events.null_key for r in reports)),
        schema=plan.layout.schema,
        files=tuple(f for r in reports for f in r.files),
        statistics=tuple(
            merge_statistics(whole, [r.statistics[index] for r in reports])
            for index in range(len(plan.layout.schema.states))
        ),
        sync_ms=max(r.sync_ms for r in reports),
        async_ms=max(r.async_ms for r in reports),
        uploaded_bytes=sum(r.uploaded_bytes for r in reports),
    )


def _metadata(
    pipeline: Pipeline, plan: SnapshotPlan, position: SourcePosition, reports: Sequence[SubtaskReport]
) -> CheckpointMetadata:
    subtasks = tuple(
        (r.subtask, OperatorSubtaskState(r.keyed, _source_position(plan, position) if r.subtask == 0 else None))
        for r in reports
    )
    operator = OperatorState(
        operator_id(pipeline.name), plan.record.parallelism, pipeline.max_parallelism, subtasks, uid=pipeline.name
    )
    return CheckpointMetadata(plan.record.checkpoint_id, (operator,))


def _source_position(plan: SnapshotPlan, position: SourcePosition) -> OperatorStreamStateHandle | None:
    if position.interval is None:
        return None
    data, states = encode_source_position(position)
    return OperatorStreamStateHandle((states,), ByteStreamStateHandle(f"{plan.attempt}-source-position", data))
