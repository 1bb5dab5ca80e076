"""Make the rows of the catalog of what the manifests of snapshots contain."""

from dataclasses import replace

from statelib.coordinator.rebuilding import Published
from statelib.flows.recovery.published import StoredSnapshot
from statelib.flows.wiring import now_ms
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId, Epoch, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState, CommitFacts, Owner, interval_key, mend_key


def published_of(snapshot: StoredSnapshot) -> Published:
    """Return the facts of a snapshot from which the coordinator decides whether it was registered."""
    m = snapshot.manifest
    return Published(m.checkpoint_id, m.kind, m.epoch, m.generation, m.base)


def record_of(snapshot: StoredSnapshot, facts: CommitFacts | None) -> CheckpointRecord:
    """Return the record of a snapshot, as COMPLETED. ``facts``: what registering it would have recorded."""
    m = snapshot.manifest
    interval = m.position.interval if m.kind is SnapshotKind.CHECKPOINT and m.mends is None else None
    key = interval_key(interval, m.generation) if interval else f"rebuilt:{snapshot.opened.directory}"
    if m.mends is not None and m.base is not None:
        key = mend_key(m.mends, m.base)
    return CheckpointRecord(
        pipeline=m.pipeline,
        checkpoint_id=m.checkpoint_id,
        kind=m.kind,
        state=CheckpointState.COMPLETED,
        owner=Owner.SYSTEM if m.kind is SnapshotKind.CHECKPOINT else Owner.USER,
        epoch=m.epoch,
        key=key,
        generation=m.generation,
        base=m.base,
        interval=interval,
        strategy=m.strategy,
        parallelism=snapshot.opened.keyed_operator().parallelism,
        directory=snapshot.opened.directory,
        created_at_ms=m.created_at_ms,
        attempt=m.attempt,
        entries=facts.entries if facts else None,
        size_bytes=facts.size_bytes if facts else None,
    )


def completed_record(row: CheckpointRecord, facts: CommitFacts) -> CheckpointRecord:
    """Return the record of a row that was PENDING or QUARANTINED, as COMPLETED. ``facts``: what registering its
    snapshot records."""
    return replace(
        row,
        state=CheckpointState.COMPLETED,
        attempt=facts.attempt,
        reason="",
        failure=None,
        entries=facts.entries,
        size_bytes=facts.size_bytes,
    )


def unreadable_record(name: PipelineName, number: CheckpointId, directory: str) -> CheckpointRecord:
    """Return the record, as ABORTED, of a checkpoint whose ``_metadata`` cannot be read."""
    return CheckpointRecord(
        pipeline=name,
        checkpoint_id=number,
        kind=SnapshotKind.CHECKPOINT,
        state=CheckpointState.ABORTED,
        owner=Owner.SYSTEM,
        epoch=Epoch(0),
        key=f"rebuilt:{directory}",
        generation=0,
        base=None,
        interval=None,
        strategy="",
        parallelism=1,
        directory=directory,
        created_at_ms=now_ms(),
    )
