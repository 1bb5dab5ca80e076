"""The plan of one attempt at a snapshot: what each task restores, and which files it need not write again."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from statelib.backends.operator.side_data import SideData, StoredSideData
from statelib.backends.wrappers.expiring import expiring_name
from statelib.definition.pipeline import Pipeline
from statelib.errors import ConflictError, NotFoundError
from statelib.flows.checkpoint.blind import continued_files, reasons_to_read
from statelib.flows.checkpoint.kept_deltas import carried_deltas, kept_interval, later_intervals
from statelib.flows.checkpoint.previous_files import can_be_shared, previous_files
from statelib.flows.checkpoint.side_data import listed_states, restored_side_data
from statelib.flows.checkpoint.touched import reasons_to_read_all
from statelib.flows.restore.continuation import continuation
from statelib.flows.restore.layout import RestoreLayout, lay_out
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import (
    NOTHING_APPLIED,
    DataInterval,
    Origin,
    SourcePosition,
    TableVersion,
)
from statelib.model.ids import AttemptId, CheckpointId
from statelib.model.record import CheckpointRecord, CheckpointState, why
from statelib.model.termination import StopMode
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.snapshots.uploads.previous import (
    PreviousSnapshot,
)
from statelib.storage.ports.views import CheckpointStorageCoordinatorView, CheckpointStorageWorkerView, StorageReference
from statelib.storage.references import encode_reference
from statelib.storage.registry import new_attempt

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SnapshotPlan:
    """The plan that the tasks of one attempt follow. Picklable."""

    record: CheckpointRecord
    attempt: AttemptId
    layout: RestoreLayout
    base_position: SourcePosition
    previous: tuple[PreviousSnapshot, ...]
    """The files of the base that each subtask may refer to or have copied."""
    trigger: bytes
    """The encoded reference to the checkpoint's location, for the workers."""
    origins: tuple[Origin, ...] = ()
    """The other pipelines in whose directories the base may have files."""
    base_files: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    """The base's files and their segments: checksum key -> (size in bytes, crc32c)."""
    side_data: tuple[tuple[StoredSideData, ...], ...] = ()
    """The side data that each subtask restores."""
    versions: tuple[TableVersion, ...] = ()
    """The versions of tables up to which this attempt applies their commits."""
    seed: str = ""
    """Where the state comes from, if it is neither that of a base nor of events."""
    reasons_to_read: tuple[str, ...] = ()
    """Why each subtask has to read its state, '' if it writes a delta instead; empty if all have to."""
    reasons_to_read_all: tuple[str, ...] = ()
    """Why each subtask has to read its state as a whole, '' if it need not; empty if all have to."""
    keeps: DataInterval | None = None
    """The interval whose delta the checkpoint keeps, so that it can be mended later."""
    later: tuple[DataInterval, ...] = ()
    """The intervals after the one that the checkpoint mends, the oldest first."""

    def stored_side_data(self, subtask: int, name: str) -> SideData:
        """Return the side data of one name as a subtask restores it."""
        return SideData(name, [part for part in self.side_data[subtask] if part.name == name])

    def reason_to_read_all(self, subtask: int) -> str:
        """Return why a subtask has to read its state as a whole, '' if it need not."""
        return self.reasons_to_read_all[subtask] if self.reasons_to_read_all else "the plan has no choice"

    def is_blind(self, subtask: int) -> bool:
        """Return whether the subtask leaves the state unread and writes a delta."""
        return bool(self.reasons_to_read) and not self.reasons_to_read[subtask]

    @property
    def applies(self) -> DataInterval | None:
        """The interval whose events are applied; None if none are, as in a savepoint."""
        return self.record.mends or self.record.interval

    @property
    def drains(self) -> bool:
        """Whether event time is advanced to its end before this savepoint is taken."""
        return self.record.stop is StopMode.DRAIN

    @property
    def position(self) -> SourcePosition:
        """The position in the source up to which events are applied; a savepoint has the position of its base."""
        interval, before = self.record.interval, self.base_position
        if interval is None:
            return before
        return SourcePosition(interval, max(interval.end_ms - 1, before.watermark_ms), self.versions)

    @property
    def reference(self) -> StorageReference:
        """The reference to the checkpoint's directory."""
        return StorageReference(self.record.directory)


def plan_snapshot(
    deployment: Deployment,
    pipeline: Pipeline,
    checkpoint_id: CheckpointId,
    *,
    seed: str = "",
    source: Checkpoint | None = None,
) -> SnapshotPlan | None:
    """Return the plan of a new attempt at a pending checkpoint; None if an earlier attempt has published its metadata.
    ``seed``: where the state of a checkpoint without a base comes from. ``source``: the snapshot that it is restored
    from, if it is one; none of its files are shared.

    Raises ConflictError (``not-pending``) if the checkpoint was aborted meanwhile.
    """
    catalog = deployment.catalog()
    name = pipeline.name
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
    plan = _plan(deployment, pipeline, record, attempt, source)
    return replace(plan, seed=seed, keeps=None if seed else plan.keeps)


def plan_preview(deployment: Deployment, pipeline: Pipeline, record: CheckpointRecord) -> SnapshotPlan:
    """Return the plan of a checkpoint that is in no catalog and that nobody will take, to see what it would change."""
    return _plan(deployment, pipeline, record, new_attempt(), None)


def _plan(
    deployment: Deployment, pipeline: Pipeline, record: CheckpointRecord, attempt: AttemptId, source: Checkpoint | None
) -> SnapshotPlan:
    """Return the plan of an attempt that was recorded."""
    catalog, name = deployment.catalog(), record.pipeline
    base_record = catalog.get(name, record.base) if record.base is not None else None
    base = None
    if base_record is not None:
        base = deployment.open(base_record)
        _log_changes(pipeline, base)
    position = base.position() if base else None
    counted = None if record.base is None else catalog.gate.key_counts(name, record.base, pipeline.max_parallelism)
    layout = lay_out(base or source, record.parallelism, pipeline, counted=counted)
    pipeline_directory = f"{deployment.root_uri().rstrip('/')}/{name}"
    previous = previous_files(
        record,
        base_record,
        base,
        schema=layout.schema,
        subtasks=tuple(zip(layout.ranges, layout.sources, strict=True)),
        pipeline_directory=pipeline_directory,
    )
    reasons = reasons_to_read(pipeline, record, layout, previous)
    blind = [not reason for reason in reasons] or [False] * record.parallelism
    return SnapshotPlan(
        record=record,
        attempt=attempt,
        layout=layout,
        base_position=position or NOTHING_APPLIED,
        previous=tuple(map(continued_files, previous, layout.sources, blind)),
        reasons_to_read=reasons,
        keeps=kept_interval(pipeline, record),
        later=later_intervals(pipeline, base, record.mends) if base is not None and record.mends is not None else (),
        reasons_to_read_all=reasons_to_read_all(pipeline, record, layout, previous),
        trigger=_trigger(deployment.storage(pipeline), record),
        origins=base.manifest.origins if base and base.manifest else (),
        base_files=(base.checksums() or {}) if base and pipeline.checkpoint.local_recovery else {},
        side_data=restored_side_data(
            base,
            (
                *pipeline.side_data,
                *carried_deltas(pipeline, record, base),
                *map(expiring_name, listed_states(pipeline, record)),
            ),
            layout.ranges,
            can_be_referred_to=base is not None and can_be_shared(base_record, base, pipeline_directory),
        ),
    )


def _trigger(storage: CheckpointStorageWorkerView, record: CheckpointRecord) -> bytes:
    default = storage.default_location(record.checkpoint_id)
    return encode_reference(StorageReference(record.directory), default)


def _log_changes(pipeline: Pipeline, base: Checkpoint) -> None:
    """Log a warning for each column of the key and each state that the pipeline file has changed since the base was
    taken."""
    source = continuation(pipeline, base)
    for renamed in source.renamed_key():
        log.warning("%s: %s", pipeline.name, renamed)
    for resolution in source.evolution.resolutions:
        if resolution.changes:
            log.warning("%s: %s", pipeline.name, resolution)
    for left_out in source.non_restored():
        log.warning("%s: not restored: %s", pipeline.name, left_out)


def _is_published(storage: CheckpointStorageCoordinatorView, directory: str) -> bool:
    """Return whether an attempt has published ``_metadata``. An attempt that was killed may not have come to its fsync:
    the same bytes are therefore published once more, which changes nothing but makes them durable."""
    try:
        published = open_checkpoint(directory)
    except NotFoundError:
        return False
    storage.publish_metadata(StorageReference(directory), published.metadata_bytes)
    return True
