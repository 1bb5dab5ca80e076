"""Publish a snapshot: combine the acknowledgements of its subtasks and write ``_metadata``."""

from collections import Counter
from collections.abc import Callable, Sequence

from statelib.coordinator.pending_checkpoint import Acknowledgement, PendingCheckpoint
from statelib.crash_points import crash_point
from statelib.definition.pipeline import Pipeline
from statelib.errors import ConflictError
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan
from statelib.flows.restore.continuation import own_operator_id, own_uid
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
    SubtaskReport,
)
from statelib.model.handles import FileStateHandle, RelativeFileStateHandle
from statelib.model.ids import AttemptId
from statelib.model.key_groups import all_key_groups
from statelib.model.record import CheckpointRecord
from statelib.model.state import KeyCounts, merge_key_counts, merge_statistics
from statelib.savepoints.opened import Checkpoint, unpublished
from statelib.storage.names import is_task_owned
from statelib.storage.uris import is_absolute

ReadBack = Callable[[Checkpoint], CheckpointManifest]


def publish(
    deployment: Deployment,
    pipeline: Pipeline,
    plan: SnapshotPlan,
    read: int,
    reports: Sequence[SubtaskReport],
    *,
    read_back: ReadBack | None = None,
) -> AttemptId:
    """Write ``_metadata`` if it does not exist yet, and return the attempt that wrote it first.

    The first acknowledgement of each subtask is used; files that only a later one wrote are deleted. ``read``: the
    number of events that the driver read. ``read_back``: may read the checkpoint back, and returns its manifest with
    what was read. It raises if the checkpoint is not what was reported. Raises CorruptStateError if the
    acknowledgements do not form a whole checkpoint.
    """
    pending = PendingCheckpoint(plan.record.parallelism, pipeline.max_parallelism)
    for report in reports:
        pending, answer = pending.acknowledge(report)
        _discard(deployment, pipeline, plan, report, answer)
    ordered = pending.complete().ordered()
    manifest = _manifest(pipeline, plan, read, ordered)
    metadata = _metadata(pipeline, plan, ordered)
    if read_back is not None:
        manifest = read_back(unpublished(plan.record.directory, metadata, manifest, deployment.storage_root))
    data = append_manifest(encode_metadata(metadata), manifest)
    crash_point("snapshot: before publish")
    published = deployment.storage(pipeline).publish_metadata(plan.reference, data)
    crash_point("snapshot: published")
    if published == data:
        return plan.attempt
    return _other_attempt(plan, published)


def _discard(
    deployment: Deployment, pipeline: Pipeline, plan: SnapshotPlan, report: SubtaskReport, answer: Acknowledgement
) -> None:
    """Delete the files that only the rejected attempt wrote. The storage refuses files with another attempt's name."""
    if not answer.discard:
        return
    storage = deployment.storage(pipeline)
    streams = storage.resolve_checkpoint_storage_location(
        plan.record.checkpoint_id, plan.reference, report.attempt, report.subtask
    )
    task_owned = storage.create_task_owned_checkpoint_state_toolset(report.attempt, report.subtask)
    for file in answer.discard:
        where = FileStateHandle if ":" in file.path or file.path.startswith("/") else RelativeFileStateHandle
        (task_owned if is_task_owned(file.path) else streams).discard(where(file.path, file.size_bytes))


def _other_attempt(plan: SnapshotPlan, published: bytes) -> AttemptId:
    """Return the attempt that published the checkpoint before this one. The files of this one are left to gc."""
    _, manifest = read_checkpoint_file(published)
    if manifest is None or (manifest.checkpoint_id, manifest.epoch) != (plan.record.checkpoint_id, plan.record.epoch):
        raise ConflictError(
            f"{plan.record.directory}/_metadata does not belong to checkpoint "
            f"{plan.record.checkpoint_id} of epoch {plan.record.epoch}",
            kind="foreign-metadata",
        )
    return manifest.attempt


def _manifest(
    pipeline: Pipeline, plan: SnapshotPlan, read: int, reports: Sequence[SubtaskReport]
) -> CheckpointManifest:
    record = plan.record
    whole = all_key_groups(pipeline.max_parallelism)
    files = _distinct_files(reports)
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
        side_data=tuple(part for r in reports for part in r.side_data),
        seed=plan.seed,
        mends=record.mends,
        deltas=tuple(delta for r in reports for delta in r.deltas),
        keys_below_deltas=_keys_below_deltas(plan, reports),
        key=tuple(pipeline.key),
        operator_states=pipeline.operator_descriptors(),
    )


def _keys_below_deltas(plan: SnapshotPlan, reports: Sequence[SubtaskReport]) -> KeyCounts | None:
    """Return the number of keys without the open deltas; None if there are none, or if it is unknown."""
    if not any(r.deltas for r in reports):
        return None
    parts = (plan.layout.keys_below_deltas[r.subtask] if r.deltas else r.keys for r in reports)
    return merge_key_counts(all_key_groups(plan.layout.schema.max_parallelism), parts)


def _distinct_files(reports: Sequence[SubtaskReport]) -> tuple[FileRecord, ...]:
    """Return each file once. After rescaling, several subtasks refer to one file of side data."""
    files: dict[str, FileRecord] = {}
    for report in reports:
        for file in report.files:
            files.setdefault(file.path, file)
    return tuple(files.values())


def _keys_changed(reports: Sequence[SubtaskReport]) -> int | None:
    """Return the number of keys that were changed; None if any subtask has not counted them. No two subtasks share a
    key."""
    counts = [r.keys_changed for r in reports if r.keys_changed is not None]
    return sum(counts) if len(counts) == len(reports) else None


def _refers_to_others(record: CheckpointRecord, files: Sequence[FileRecord]) -> bool:
    """Return whether the checkpoint refers to files outside its pipeline's directory, as that of a fork does."""
    own = record.directory.rpartition("/")[0]
    return any(is_absolute(f.path) and not f.path.startswith(f"{own}/") for f in files)


def _events(read: int, reports: Sequence[SubtaskReport]) -> EventCounts:
    late, without_user_key = Counter[str](), Counter[str]()
    for report in reports:
        late.update(dict(report.events.late))
        without_user_key.update(dict(report.events.without_user_key))
    applied, null_key = sum(r.events.applied for r in reports), sum(r.events.null_key for r in reports)
    return EventCounts(read, applied, null_key, tuple(late.items()), tuple(without_user_key.items()))


def _metadata(pipeline: Pipeline, plan: SnapshotPlan, reports: Sequence[SubtaskReport]) -> CheckpointMetadata:
    states = ((r.subtask, OperatorSubtaskState(r.keyed, r.operator)) for r in reports)
    # A subtask without any state is left out, so that a restore matches nothing to it (R147).
    subtasks = tuple((subtask, state) for subtask, state in states if state != OperatorSubtaskState())
    operator = OperatorState(
        own_operator_id(pipeline),
        plan.record.parallelism,
        pipeline.max_parallelism,
        subtasks,
        uid=own_uid(pipeline),
    )
    return CheckpointMetadata(plan.record.checkpoint_id, (operator,))
