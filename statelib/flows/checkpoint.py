"""The checkpoint story: begin, (the Spark job), check, register, or abort.

No coordinator process lives between the steps: each loads what the catalog knows, does its one
thing and saves. Any step may be repeated; none undoes what a finished one did.
"""

from dataclasses import dataclass, replace

from statelib.catalog.catalog import Catalog
from statelib.definition.pipeline import Pipeline
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.flows.facts import collect_facts
from statelib.flows.opened import Checkpoint, open_checkpoint
from statelib.flows.wiring import PLACES, Deployment
from statelib.model.checkpoint import DataInterval, FileRecord, SnapshotKind, SourcePosition
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import BeginRequest, CheckpointRecord, CheckpointState, CommitFacts, PipelineHead
from statelib.quality.gate import QualityReport, run_gate
from statelib.wire.checksum import crc32c


@dataclass(frozen=True)
class Begun:
    """``already_completed``: the interval is in the state already; there is nothing to do."""

    checkpoint_id: CheckpointId
    already_completed: bool


def begin(deployment: Deployment, pipeline: Pipeline, interval: DataInterval, owner: str) -> Begun:
    """Allocate the checkpoint of one data interval, or find the one that holds it already.

    Raises InvalidRequestError: ``bad-interval``, ``interval-out-of-order`` (the state is past it),
    ``interval-gap`` (events in between would be lost; ``on_gap: allow`` accepts that).
    """
    if interval.end_ms <= interval.start_ms:
        raise InvalidRequestError(f"data interval {_text(interval)}: expected start before end", kind="bad-interval")
    catalog = deployment.catalog()
    name = PipelineName(pipeline.name)
    done = catalog.applied(name, interval)
    if done is not None:
        return Begun(done.checkpoint_id, already_completed=True)
    head = catalog.head(name)
    _check_order(pipeline, interval, _position(catalog, head))
    request = BeginRequest(
        pipeline=name,
        kind=SnapshotKind.CHECKPOINT,
        interval=interval,
        strategy=pipeline.checkpoint.strategy,
        parallelism=head.parallelism or pipeline.parallelism,
        owner=owner,
        key=f"{interval.start_ms}-{interval.end_ms}@{head.generation}",
    )
    storage = deployment.storage(pipeline)
    record = catalog.begin(request, lambda number: storage.initialize_location(number).directory)
    return Begun(record.checkpoint_id, record.state is CheckpointState.COMPLETED)


def check(deployment: Deployment, pipeline: Pipeline, checkpoint_id: CheckpointId) -> QualityReport:
    """Prove that the checkpoint is complete, from storage alone; the report is kept either way.

    Raises CorruptStateError (``gate-failed``) that lists each failed expectation.
    """
    record = deployment.catalog().get(PipelineName(pipeline.name), checkpoint_id)
    facts = collect_facts(deployment, record)
    report = run_gate(facts, f"{deployment.docs_directory}/{record.pipeline}/chk-{checkpoint_id}-{record.attempt}")
    if not report.passed:
        raise CorruptStateError(
            f"checkpoint {record.pipeline}/{checkpoint_id} is not complete: {'; '.join(report.failures)}",
            kind="gate-failed",
            hint=f"report: {report.report_uri}",
        )
    return report


def register(
    deployment: Deployment, pipeline: Pipeline, checkpoint_id: CheckpointId, report_uri: str = ""
) -> CheckpointRecord:
    """The commit point: one transaction makes the checkpoint COMPLETED and the pipeline's head."""
    catalog = deployment.catalog()
    record = catalog.get(PipelineName(pipeline.name), checkpoint_id)
    opened = open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root)
    return catalog.commit(record.pipeline, checkpoint_id, record.epoch, commit_facts(opened, report_uri))


def commit_facts(opened: Checkpoint, report_uri: str) -> CommitFacts:
    """What the catalog keeps of a checkpoint that lies complete on storage."""
    manifest = opened.manifest
    if manifest is None:
        raise CorruptStateError(f"{opened.directory}: _metadata has no statelib manifest", kind="no-manifest")
    return CommitFacts(
        attempt=manifest.attempt,
        entries=sum(s.total_entries for s in manifest.statistics),
        size_bytes=opened.metadata_size_bytes + sum(f.size_bytes for f in manifest.files),
        events=manifest.events,
        report=report_uri,
        metadata_crc32c=crc32c(opened.metadata_bytes),
        metadata_size_bytes=opened.metadata_size_bytes,
        files=tuple(_absolute(opened.directory, f) for f in manifest.files),
    )


def abort(deployment: Deployment, pipeline: str, checkpoint_id: CheckpointId, reason: str) -> CheckpointRecord:
    """Give a pending checkpoint up. Deletes nothing; a completed one stays completed."""
    return deployment.catalog().abort(PipelineName(pipeline), checkpoint_id, reason)


def _position(catalog: Catalog, head: PipelineHead) -> SourcePosition | None:
    if head.head is None:
        return None
    return open_checkpoint(catalog.get(head.pipeline, head.head).directory, own=True).position()


def _check_order(pipeline: Pipeline, interval: DataInterval, position: SourcePosition | None) -> None:
    if position is None or position.interval is None:
        return
    last = position.interval
    if interval.start_ms < last.end_ms:
        raise InvalidRequestError(
            f"{pipeline.name}: data interval {_text(interval)} lies before the end of the last applied one, "
            f"{_text(last)}, and is not part of the state's history",
            kind="interval-out-of-order",
            hint=f"run {pipeline.name}.restore to a checkpoint before it, then replay",
        )
    if interval.start_ms > last.end_ms and pipeline.on_gap == "fail":
        raise InvalidRequestError(
            f"{pipeline.name}: data interval {_text(interval)} does not follow the last applied one, {_text(last)}: "
            "the events in between would be lost",
            kind="interval-gap",
            hint="backfill the missing intervals first, or set 'on_gap: allow' in the pipeline file",
        )


def _absolute(directory: str, record: FileRecord) -> FileRecord:
    return replace(record, path=PLACES.file_uri(directory, record.path))


def _text(interval: DataInterval) -> str:
    return f"[{interval.start_ms}, {interval.end_ms}) ms"
