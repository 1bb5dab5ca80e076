"""Send the metrics of what a run, a check, a restore or a cleanup did. Errors here never fail the operation itself."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from statelib.catalog.catalog import Catalog
from statelib.errors import StatelibError
from statelib.flows.cleanup.garbage import CollectedGarbage
from statelib.flows.cleanup.orphans import Orphans
from statelib.flows.views.verification import VerifiedPipeline
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import PipelineName
from statelib.model.quality import QualityResult
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.savepoints.opened import open_checkpoint
from statelib.telemetry import metrics as m
from statelib.telemetry.metrics import Metric, Telemetry

Value = tuple[Metric, float | None]
"""A metric and its value; None if the value is not known."""


def checkpoint_completed(telemetry: Telemetry, record: CheckpointRecord) -> None:
    """Send the metrics of a checkpoint or savepoint that has just been registered. Values from its manifest are left
    out if it cannot be read."""
    tags = _tags(record)
    for metric, value in _of_record(record):
        if value is not None:
            telemetry.emit(metric, value, tags)
    manifest = _manifest(record)
    if manifest is None:
        return
    restores = [r.restore_ms for r in manifest.restores if r is not None]
    if restores:
        telemetry.emit(m.RESTORE_DURATION, max(restores), tags)
    if record.interval is not None:
        telemetry.emit(m.EVENTS_LATE, sum(late for _, late in manifest.events.late), tags)
        without_user_key = sum(events for _, events in manifest.events.without_user_key)
        telemetry.emit(m.EVENTS_WITHOUT_USER_KEY, without_user_key, tags)
    for state, entries in manifest.entries_by_state():
        telemetry.emit(m.STATE_ENTRIES, entries, {**tags, "state": state})


def _of_record(record: CheckpointRecord) -> Iterator[Value]:
    """Yield the metrics whose values are in the catalog's row."""
    done_ms, cost = record.completed_at_ms, record.measured
    took_ms = None if done_ms is None else max(done_ms - record.created_at_ms, 0)
    yield m.COMPLETED, 1
    yield m.DURATION, took_ms
    if cost is not None:
        yield m.SYNC_DURATION, cost.sync_ms
        yield m.ASYNC_DURATION, cost.async_ms
        yield m.UPLOAD_DURATION, cost.upload_ms
        yield m.UPLOADED, cost.uploaded_bytes
    yield m.SIZE, record.size_bytes
    yield m.KEYS, record.keys
    yield m.ENTRIES, record.entries
    if record.interval is None:
        return
    yield m.KEYS_CHANGED, cost.keys_changed if cost else None
    yield m.LAG, None if done_ms is None else max(done_ms - record.interval.end_ms, 0)
    if record.events is not None:
        yield m.EVENTS, record.events.applied
        yield m.EVENTS_DROPPED, record.events.null_key
        yield m.EVENTS_PER_SECOND, record.events.applied * 1000 / took_ms if took_ms else None


@contextmanager
def counting_aborted(telemetry: Telemetry, catalog: Catalog, pipeline: str) -> Iterator[None]:
    """Send a metric for each checkpoint and savepoint of the pipeline that is pending before the block and aborted
    after it, whether the block succeeds or fails."""
    name = PipelineName(pipeline)
    pending: Sequence[CheckpointRecord] = ()
    with suppress(StatelibError):
        pending = catalog.list(name, (CheckpointState.PENDING,))
    try:
        yield
    finally:
        with suppress(StatelibError):
            for record in pending:
                _checkpoint_ended(telemetry, catalog.get(name, record.checkpoint_id))


def _checkpoint_ended(telemetry: Telemetry, record: CheckpointRecord) -> None:
    if record.state is CheckpointState.ABORTED:
        telemetry.emit(m.FAILURES, 1, {**_tags(record), "reason": str(record.failure or "UNKNOWN")})


def gate_judged(telemetry: Telemetry, pipeline: str, results: Sequence[QualityResult]) -> None:
    """Send the numbers of passed and failed expectations of one run of the gate, per severity; also if a number is
    0."""
    for severity in sorted({result.severity for result in results}):
        for word, passed in (("passed", True), ("failed", False)):
            count = sum(r.passed is passed and r.severity is severity for r in results)
            telemetry.emit(m.CHECKS, count, {"pipeline": pipeline, "severity": severity.lower(), "result": word})


def verified(telemetry: Telemetry, result: VerifiedPipeline) -> None:
    """Send the metrics of the verification of a pipeline."""
    tags = {"pipeline": result.pipeline}
    telemetry.emit(m.VERIFIED, result.checkpoints, tags)
    telemetry.emit(m.VERIFIED_BYTES, result.bytes_read, tags)
    telemetry.emit(m.FAULTS, len(result.problems), tags)


def restored(telemetry: Telemetry, pipeline: str) -> None:
    """Send the metric of a pipeline that was restored to a checkpoint."""
    telemetry.emit(m.RESTORES, 1, {"pipeline": pipeline})


def garbage_collected(telemetry: Telemetry, collected: Sequence[CollectedGarbage]) -> None:
    """Send the numbers of files and bytes that gc deleted, per pipeline."""
    for each in collected:
        telemetry.emit(m.DELETED_FILES, len(each.files), {"pipeline": each.pipeline})
        telemetry.emit(m.DELETED_BYTES, each.size_bytes, {"pipeline": each.pipeline})


def orphans_found(telemetry: Telemetry, orphans: Sequence[Orphans]) -> None:
    """Send the numbers of orphaned files and bytes that are left after a sweep, per pipeline."""
    for each in orphans:
        left = 0 if each.deleted else 1
        telemetry.emit(m.ORPHANS, left * len(each.files), {"pipeline": each.pipeline})
        telemetry.emit(m.ORPHAN_BYTES, left * each.size_bytes, {"pipeline": each.pipeline})


def _tags(record: CheckpointRecord) -> dict[str, str]:
    return {"pipeline": record.pipeline, "kind": record.kind.lower(), "strategy": record.strategy}


def _manifest(record: CheckpointRecord) -> CheckpointManifest | None:
    try:
        return open_checkpoint(record.directory).manifest
    except StatelibError:
        return None
