"""Conversion between values and rows of the tables ``checkpoint`` and ``lease``."""

from collections.abc import Mapping

from sqlalchemy import Row

from statelib.catalog.tables.row_checks import checked
from statelib.catalog.tables.schema import CHECKPOINT, LEASE
from statelib.model.checkpoint import DataInterval, EventCounts, SnapshotKind, SnapshotMeasure
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.record import (
    BeginRequest,
    CheckpointRecord,
    CheckpointState,
    CommitFacts,
    Owner,
    PipelineHead,
)
from statelib.model.termination import StopMode

Values = Mapping[str, str | int | None]


def to_record(row: Row[tuple[object, ...]]) -> CheckpointRecord:
    """Return the record of a whole row of ``checkpoint``, without the ``metadata_`` columns, which only a rebuild uses.
    Raises CorruptStateError (``catalog-row-damaged``)."""
    v = checked(CHECKPOINT, row)
    return CheckpointRecord(
        pipeline=PipelineName(v["pipeline"]),
        checkpoint_id=CheckpointId(v["checkpoint_id"]),
        kind=SnapshotKind(v["kind"]),
        state=CheckpointState(v["state"]),
        owner=Owner(v["owner"]),
        epoch=Epoch(v["epoch"]),
        key=v["idempotency_key"],
        generation=v["generation"],
        base=_id(v["base"]),
        interval=interval_of(v["interval_start_ms"], v["interval_end_ms"]),
        strategy=v["strategy"],
        parallelism=v["parallelism"],
        directory=v["directory"],
        created_at_ms=v["created_at_ms"],
        attempt=None if v["attempt"] is None else AttemptId(v["attempt"]),
        note=v["note"],
        reason=v["reason"],
        completed_at_ms=v["completed_at_ms"],
        entries=v["entries"],
        keys=v["keys"],
        size_bytes=v["size_bytes"],
        events=events_of(v["events_read"], v["events_applied"], v["events_null_key"]),
        report=v["report"],
        failure=None if v["failure"] is None else CheckpointFailureReason(v["failure"]),
        deadline_ms=v["deadline_ms"],
        begun_by=v["begun_by"],
        measured=_measured(v["sync_ms"], v["async_ms"], v["upload_ms"], v["uploaded_bytes"], v["keys_changed"]),
        stop=None if v["stop"] is None else StopMode(v["stop"]),
    )


def to_head(row: Row[tuple[object, ...]]) -> PipelineHead:
    """Return the pipeline head of a whole row of ``lease``. Raises CorruptStateError (``catalog-row-damaged``)."""
    v = checked(LEASE, row)
    return PipelineHead(
        PipelineName(v["pipeline"]),
        Epoch(v["epoch"]),
        v["generation"],
        _id(v["head"]),
        v["parallelism"],
        v["cancelled_at_ms"] is not None,
    )


def pending_values(
    request: BeginRequest, head: PipelineHead, checkpoint_id: CheckpointId, directory: str, now_ms: int
) -> Values:
    """Return the row of a PENDING checkpoint or savepoint whose base is ``head``."""
    savepoint = request.kind is SnapshotKind.SAVEPOINT
    return {
        "pipeline": request.pipeline,
        "checkpoint_id": checkpoint_id,
        "kind": request.kind,
        "state": CheckpointState.PENDING,
        "owner": Owner.USER if savepoint else Owner.SYSTEM,
        "epoch": head.epoch,
        "idempotency_key": request.key,
        "generation": head.generation,
        "base": head.head,
        "interval_start_ms": request.interval.start_ms if request.interval else None,
        "interval_end_ms": request.interval.end_ms if request.interval else None,
        "strategy": request.strategy,
        "parallelism": request.parallelism,
        "directory": directory,
        "created_at_ms": now_ms,
        "note": request.note,
        "reason": "",
        "report": "",
        "deadline_ms": None if request.timeout_ms is None else now_ms + request.timeout_ms,
        "begun_by": request.owner,
        "stop": request.stop,
    }


def completed_values(facts: CommitFacts, now_ms: int) -> Values:
    """Return the columns that a commit writes, except the state."""
    measured = facts.measured
    return {
        "attempt": facts.attempt,
        "completed_at_ms": now_ms,
        "entries": facts.entries,
        "size_bytes": facts.size_bytes,
        "events_read": facts.events.read,
        "events_applied": facts.events.applied,
        "events_null_key": facts.events.null_key,
        "report": facts.report,
        # An earlier attempt may have recorded why it failed.
        "failure": None,
        "reason": "",
        "metadata_crc32c": facts.metadata_crc32c,
        "metadata_size_bytes": facts.metadata_size_bytes,
        "sync_ms": measured.sync_ms if measured else None,
        "async_ms": measured.async_ms if measured else None,
        "upload_ms": measured.upload_ms if measured else None,
        "uploaded_bytes": measured.uploaded_bytes if measured else None,
        "keys_changed": measured.keys_changed if measured else None,
        # If the manifest has no number of keys, the gate may have counted them: keep its number.
        **({} if facts.keys is None else {"keys": facts.keys}),
    }


def _id(value: int | None) -> CheckpointId | None:
    return None if value is None else CheckpointId(value)


def interval_of(start_ms: int | None, end_ms: int | None) -> DataInterval | None:
    """Return the data interval of a row; None if a column is NULL, as in savepoints."""
    return None if start_ms is None or end_ms is None else DataInterval(start_ms, end_ms)


def events_of(read: int | None, applied: int | None, null_key: int | None) -> EventCounts | None:
    """Return the event counts of a row; None if a column is NULL, as before the commit."""
    return None if read is None or applied is None or null_key is None else EventCounts(read, applied, null_key)


def _measured(
    sync_ms: int | None, async_ms: int | None, upload_ms: int | None, uploaded_bytes: int | None, keys: int | None
) -> SnapshotMeasure | None:
    if sync_ms is None or async_ms is None:
        return None
    return SnapshotMeasure(sync_ms, async_ms, upload_ms, uploaded_bytes, keys)
