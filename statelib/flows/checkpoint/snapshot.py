"""What the Spark driver does around its tasks: plan a snapshot, then publish what the tasks acknowledged."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from statelib.coordinator.pending_checkpoint import Acknowledgement, PendingCheckpoint
from statelib.crash_points import crash_point
from statelib.definition.pipeline import Pipeline
from statelib.errors import ConflictError, NotFoundError, StatelibError
from statelib.flows.checkpoint.previous_files import previous_files
from statelib.flows.continuation import continuation, own_operator_id, own_uid
from statelib.flows.restore_layout import RestoreLayout, lay_out
from statelib.flows.wiring import Deployment, now_ms
from statelib.formats.manifest.trailer import append_manifest, read_checkpoint_file
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.model.checkpoint import (
    CheckpointManifest,
    CheckpointMetadata,
    EventCounts,
    FileRecord,
    OperatorState,
    OperatorSubtaskState,
    Origin,
    SourcePosition,
    SubtaskReport,
)
from statelib.model.failure import CheckpointFailureReason, failure_in
from statelib.model.handles import FileStateHandle, RelativeFileStateHandle
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import all_key_groups
from statelib.model.record import CheckpointRecord, CheckpointState, why
from statelib.model.state import merge_key_counts, merge_statistics
from statelib.model.termination import StopMode
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.snapshots.execution import EXPIRED
from statelib.snapshots.previous import (
    PreviousSnapshot,
)
from statelib.storage.places import is_absolute
from statelib.storage.references import encode_reference
from statelib.storage.registry import new_attempt
from statelib.storage.views import CheckpointStorageCoordinatorView, CheckpointStorageWorkerView, StorageReference

log = logging.getLogger(__name__)

NOTHING_APPLIED = SourcePosition(None, -(2**63))


@dataclass(frozen=True)
class SnapshotPlan:
    """All that the tasks of one attempt need; picklable."""

    record: CheckpointRecord
    attempt: AttemptId
    layout: RestoreLayout
    base_position: SourcePosition
    previous: tuple[PreviousSnapshot, ...]
    """By subtask: the snapshot whose files it may refer to."""
    trigger: bytes
    """The reference of the checkpoint's location, as it is shipped to workers."""
    origins: tuple[Origin, ...] = ()
    """Of the base: other pipelines in whose directories such files may lie."""
    base_files: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    """Of the base: key of a file or a segment -> (size in bytes, crc32c)."""

    @property
    def drains(self) -> bool:
        """Whether event time goes to its end before this savepoint is taken."""
        return self.record.stop is StopMode.DRAIN

    @property
    def position(self) -> SourcePosition:
        """How far the source has been applied with this checkpoint; a savepoint moves nothing."""
        interval, before = self.record.interval, self.base_position
        if interval is None:
            return before
        return SourcePosition(interval, max(interval.end_ms - 1, before.watermark_ms))

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
    if record.state is CheckpointState.COMPLETED or _is_published(deployment.storage(pipeline), record.directory):
        return None
    if record.state is not CheckpointState.PENDING:
        raise ConflictError(
            f"checkpoint {name}/{checkpoint_id} is {record.state}: {why(record) or 'no reason given'}",
            kind="not-pending",
            hint="clear the DAG run from its first task to begin a new one",
        )
    attempt = new_attempt()
    record = catalog.record_attempt(name, checkpoint_id, attempt, pipeline.checkpoint.timeout_s * 1000)
    base_record = catalog.get(name, record.base) if record.base is not None else None
    base = None
    if base_record is not None:
        base = open_checkpoint(base_record.directory, own=True, storage_root=deployment.storage_root)
        _log_changes(pipeline, base)
    position = base.position() if base else None
    counted = None if record.base is None else catalog.gate.key_counts(name, record.base, pipeline.max_parallelism)
    layout = lay_out(base, record.parallelism, pipeline, counted=counted)
    return SnapshotPlan(
        record=record,
        attempt=attempt,
        layout=layout,
        base_position=position or NOTHING_APPLIED,
        previous=previous_files(
            record,
            base_record,
            base,
            schema=layout.schema,
            subtasks=tuple(zip(layout.ranges, layout.sources, strict=True)),
            pipeline_directory=f"{deployment.root_uri().rstrip('/')}/{name}",
        ),
        trigger=_trigger(deployment.storage(pipeline), record),
        origins=base.manifest.origins if base and base.manifest else (),
        base_files=(base.checksums() or {}) if base and pipeline.checkpoint.local_recovery else {},
    )


def _trigger(storage: CheckpointStorageWorkerView, record: CheckpointRecord) -> bytes:
    default = storage.default_location(record.checkpoint_id)
    return encode_reference(StorageReference(record.directory), default)


def _log_changes(pipeline: Pipeline, base: Checkpoint) -> None:
    """What the base's state becomes, where the pipeline file has changed since; the workers say how much of it."""
    source = continuation(pipeline, base)
    for resolution in source.evolution.resolutions:
        if resolution.changes:
            log.warning("%s: %s", pipeline.name, resolution)
    for left_out in source.non_restored():
        log.warning("%s: not restored: %s", pipeline.name, left_out)


@contextmanager
def declining(deployment: Deployment, plan: SnapshotPlan) -> Iterator[None]:
    """What ends the attempt here is noted in the catalog, for whoever gives the checkpoint up: the next attempt
    may still complete it. Beyond its deadline it is aborted: no attempt may go on with it."""
    try:
        yield
    except Exception as error:
        try:
            _note(deployment, plan, error)
        except StatelibError as second:
            error.add_note(f"also while noting the failure: {second}")
        raise


def _note(deployment: Deployment, plan: SnapshotPlan, error: Exception) -> None:
    catalog, record = deployment.catalog(), plan.record
    failure, text = failure_in(error, plan.attempt)
    if isinstance(error, StatelibError):
        failure, text = CheckpointFailureReason.CHECKPOINT_DECLINED, f"{error.kind}: {error.message}"
        if error.kind == EXPIRED:
            failure, text = CheckpointFailureReason.CHECKPOINT_EXPIRED, f"attempt {plan.attempt}: {error.message}"
            catalog.abort(record.pipeline, record.checkpoint_id, text, failure)
            return
    catalog.note_failure(record.pipeline, record.checkpoint_id, plan.attempt, failure, text)


def _is_published(storage: CheckpointStorageCoordinatorView, directory: str) -> bool:
    """Whether a try has published it. One that was killed may have done so without coming to its fsync: what is there
    is published once more, which changes nothing but is durable when it returns."""
    try:
        found = open_checkpoint(directory)
    except NotFoundError:
        return False
    storage.publish_metadata(StorageReference(directory), found.metadata_bytes)
    return True


def publish(
    deployment: Deployment, pipeline: Pipeline, plan: SnapshotPlan, read: int, reports: Sequence[SubtaskReport]
) -> AttemptId:
    """All subtasks acknowledged: write ``_metadata``, put-if-absent. Returns the attempt that won.

    The first acknowledgement of a subtask counts; what only a later one wrote is discarded. Raises
    CorruptStateError if they do not make one whole checkpoint.
    """
    pending = PendingCheckpoint(plan.record.parallelism, pipeline.max_parallelism)
    for report in reports:
        pending, answer = pending.acknowledge(report)
        _discard(deployment, pipeline, plan, report, answer)
    ordered = pending.complete().ordered()
    manifest = _manifest(pipeline, plan, read, ordered)
    data = append_manifest(encode_metadata(_metadata(pipeline, plan, ordered)), manifest)
    crash_point("snapshot: before publish")
    there = deployment.storage(pipeline).publish_metadata(plan.reference, data)
    crash_point("snapshot: published")
    if there == data:
        return plan.attempt
    return _other_attempt(plan, there)


def _discard(
    deployment: Deployment, pipeline: Pipeline, plan: SnapshotPlan, report: SubtaskReport, answer: Acknowledgement
) -> None:
    """Storage refuses a file that the reporting attempt did not name."""
    if not answer.discard:
        return
    streams = deployment.storage(pipeline).resolve_checkpoint_storage_location(
        plan.record.checkpoint_id, plan.reference, report.attempt, report.subtask
    )
    for file in answer.discard:
        where = FileStateHandle if ":" in file.path or file.path.startswith("/") else RelativeFileStateHandle
        streams.discard(where(file.path, file.size_bytes))


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
    record = plan.record
    whole = all_key_groups(pipeline.max_parallelism)
    files = tuple(f for r in reports for f in r.files)
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
        position=plan.position,
        events=_events(read, reports),
        schema=plan.layout.schema,
        files=files,
        origins=plan.origins if _refers_to_others(record, files) else (),
        statistics=tuple(
            merge_statistics(whole, [r.statistics[index] for r in reports])
            for index in range(len(plan.layout.schema.states))
        ),
        sync_ms=max(r.sync_ms for r in reports),
        async_ms=max(r.async_ms for r in reports),
        uploaded_bytes=sum(r.uploaded_bytes for r in reports),
        restored_from=tuple(r.restored_from for r in reports),
        restores=tuple(r.restored for r in reports),
        uid=own_uid(pipeline),
        upload_ms=max(r.upload_ms for r in reports),
        keys_changed=_keys_changed(reports),
        drained=plan.drains,
        keys=merge_key_counts(whole, (r.keys for r in reports)),
    )


def _keys_changed(reports: Sequence[SubtaskReport]) -> int | None:
    """A key is one subtask's only, hence the sum; None if a subtask did not count."""
    counts = [r.keys_changed for r in reports if r.keys_changed is not None]
    return sum(counts) if len(counts) == len(reports) else None


def _refers_to_others(record: CheckpointRecord, files: Sequence[FileRecord]) -> bool:
    """Whether a fork still needs files of what it is a fork of."""
    own = record.directory.rpartition("/")[0]
    return any(is_absolute(f.path) and not f.path.startswith(f"{own}/") for f in files)


def _events(read: int, reports: Sequence[SubtaskReport]) -> EventCounts:
    late: dict[str, int] = {}
    for report in reports:
        for state, events in report.events.late:
            late[state] = late.get(state, 0) + events
    applied, null_key = sum(r.events.applied for r in reports), sum(r.events.null_key for r in reports)
    return EventCounts(read, applied, null_key, tuple(late.items()))


def _metadata(pipeline: Pipeline, plan: SnapshotPlan, reports: Sequence[SubtaskReport]) -> CheckpointMetadata:
    states = ((r.subtask, OperatorSubtaskState(r.keyed, r.operator)) for r in reports)
    # A subtask without any state is left out, not entered as an empty one: nothing is to be matched on restore (R147).
    subtasks = tuple((subtask, state) for subtask, state in states if state != OperatorSubtaskState())
    operator = OperatorState(
        own_operator_id(pipeline),
        plan.record.parallelism,
        pipeline.max_parallelism,
        subtasks,
        uid=own_uid(pipeline),
    )
    return CheckpointMetadata(plan.record.checkpoint_id, (operator,))
