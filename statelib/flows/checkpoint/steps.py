"""The checkpoint story: begin, (the Spark job), check, register, or abort.

No coordinator process lives between the steps: each loads what the catalog knows, does its one
thing and saves. Any step may be repeated; none undoes what a finished one did.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from statelib.catalog.commit.admission import HEAD_MOVED
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import range_text, source_parts
from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError
from statelib.flows.checkpoint.readiness import check_ready
from statelib.flows.gate.judging import judge
from statelib.flows.lifecycle.renaming import adopt_former
from statelib.flows.recovery.catalog_behind import check_remembered
from statelib.flows.restore.continuation import continued_head
from statelib.flows.restore.quarantine import set_aside
from statelib.flows.wiring import Deployment, now_ms
from statelib.model.checkpoint import DataInterval, SnapshotKind, SourcePosition
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.quality import QualityResult, Severity, verdict
from statelib.model.record import BeginRequest, CheckpointRecord, CheckpointState, PipelineHead, interval_key
from statelib.quality.gate import QualityReport
from statelib.savepoints.commit_facts import commit_facts
from statelib.savepoints.opened import open_checkpoint

_TRIES = 3


@dataclass(frozen=True)
class Begun:
    """``already_completed``: the interval is in the state already; there is nothing to do."""

    checkpoint_id: CheckpointId
    already_completed: bool


def begin(
    deployment: Deployment, pipeline: Pipeline, interval: DataInterval, owner: str, *, assume_ready: bool = False
) -> Begun:
    """Allocate the checkpoint of one data interval, or find the one that holds it already. ``assume_ready``: whoever
    calls has waited for the interval's events, so that ``source.ready`` is not looked at.

    Raises what :func:`~statelib.definition.source.parts.source_parts` raises where nothing says which paths hold the
    interval's events, InvalidRequestError: ``bad-interval``, ``interval-out-of-order`` (the state is past it),
    ``interval-gap`` (events in between would be lost; ``on_gap: allow`` accepts that), and what
    :func:`~statelib.flows.restore.continuation.continued_head` raises for state that the pipeline cannot go on from.
    :func:`statelib.catalog.commit.admission.admit` raises. Nothing is recorded of such a refusal. ConflictError
    (``catalog-behind-storage``): checkpoints lie there that the catalog never heard of. RetryableError
    (``source-not-ready``): the interval's events are not complete.
    """
    if interval.end_ms <= interval.start_ms:
        raise InvalidRequestError(
            f"data interval {range_text(interval)}: expected start before end", kind="bad-interval"
        )
    for _ in range(_TRIES - 1):
        try:
            return _begin(deployment, pipeline, interval, owner, assume_ready)
        except ConflictError as error:  # what the interval was held against is not where the pipeline stands now
            if error.kind != HEAD_MOVED:
                raise
    return _begin(deployment, pipeline, interval, owner, assume_ready)


def _begin(deployment: Deployment, pipeline: Pipeline, interval: DataInterval, owner: str, assume_ready: bool) -> Begun:
    catalog = deployment.catalog()
    name = PipelineName(pipeline.name)
    check_remembered(deployment, name)
    head = _head(deployment, pipeline, owner)
    done = catalog.applied(name, interval)
    if done is not None:
        return Begun(done.checkpoint_id, already_completed=True)
    source_parts(pipeline, deployment.data, interval)
    continued = continued_head(deployment, pipeline, head)
    _check_order(pipeline, interval, continued.opened.position() if continued else None)
    if not assume_ready:
        check_ready(deployment, pipeline, interval)
    request = BeginRequest(
        pipeline=name,
        kind=SnapshotKind.CHECKPOINT,
        interval=interval,
        strategy=pipeline.checkpoint.strategy,
        parallelism=head.parallelism or pipeline.parallelism,
        owner=owner,
        key=interval_key(interval, head.generation),
        timeout_ms=pipeline.checkpoint.timeout_s * 1000,
        tolerable_failures=pipeline.checkpoint.tolerable_failures,
        decided_at=head,
    )
    storage = deployment.storage(pipeline)
    record = catalog.begin(request, lambda number: storage.initialize_location(number).directory)
    return Begun(record.checkpoint_id, record.state is CheckpointState.COMPLETED)


def check(
    deployment: Deployment,
    pipeline: Pipeline,
    checkpoint_id: CheckpointId,
    judged: Callable[[Sequence[QualityResult]], None] = lambda _results: None,
) -> QualityReport:
    """Prove that the checkpoint is complete, from storage alone, and judge it by the pipeline's ``checks``; results and
    report are kept either way. ``judged`` is told the results, whatever follows from them.

    Raises CorruptStateError that lists each failed expectation: ``gate-failed``, and ``quarantined`` once the
    checkpoint is kept aside, or was before.
    """
    catalog = deployment.catalog()
    record = catalog.get(PipelineName(pipeline.name), checkpoint_id)
    if record.state is CheckpointState.QUARANTINED:
        raise set_aside(record)
    opened = open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root)
    lineage = catalog.lineage(record.pipeline, record.base) if record.base is not None else []
    docs = f"{deployment.docs_directory}/{record.pipeline}/chk-{checkpoint_id}-{record.attempt}"
    report = judge(deployment, pipeline, record, opened, lineage=lineage, docs_directory=docs)
    told = opened.manifest is not None and opened.manifest.keys is not None
    catalog.gate.record_results(record.pipeline, checkpoint_id, report.results, None if told else report.keys)
    judged(report.results)
    if report.verdict is Severity.QUARANTINE and record.state is CheckpointState.PENDING:
        reason = "; ".join(report.failures)
        aside = commit_facts(opened, report.report_uri)
        raise set_aside(catalog.gate.set_aside(record.pipeline, checkpoint_id, record.epoch, aside, reason))
    if not report.passed:
        raise CorruptStateError(
            f"checkpoint {record.pipeline}/{checkpoint_id} is not complete: {'; '.join(report.failures)}",
            kind="gate-failed",
            hint=_where_said(record, report.report_uri),
        )
    return report


def _where_said(record: CheckpointRecord, report_uri: str) -> str:
    """Where all results are to be read: the report, or if it could not be written, the catalog."""
    return (
        f"report: {report_uri}" if report_uri else f"statelib checkpoints show {record.pipeline}/{record.checkpoint_id}"
    )


def register(
    deployment: Deployment, pipeline: Pipeline, checkpoint_id: CheckpointId, report_uri: str = ""
) -> CheckpointRecord:
    """The commit point: one transaction makes the checkpoint COMPLETED and the pipeline's head.

    Raises CorruptStateError (``gate-failed``) for one that the gate refused when it last judged it, whoever asks."""
    catalog = deployment.catalog()
    record = catalog.get(PipelineName(pipeline.name), checkpoint_id)
    if verdict(catalog.gate.results(record.pipeline, checkpoint_id)) is Severity.FAIL:
        raise CorruptStateError(
            f"checkpoint {record.pipeline}/{checkpoint_id} was refused by the gate: it cannot be registered",
            kind="gate-failed",
            hint=f"statelib checkpoints show {record.pipeline}/{checkpoint_id} says why",
        )
    opened = open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root)
    committed = catalog.commit(record.pipeline, checkpoint_id, record.epoch, commit_facts(opened, report_uri))
    catalog.browsing.storage.try_to_sample(record.pipeline)
    return committed


def abort(
    deployment: Deployment,
    pipeline: str,
    checkpoint_id: CheckpointId,
    reason: str,
    failure: CheckpointFailureReason = CheckpointFailureReason.TASK_FAILURE,
    *,
    clock: Callable[[], int] = now_ms,
) -> CheckpointRecord:
    """Give a pending checkpoint up. Deletes nothing; a completed one stays completed.

    Beyond its deadline it has expired, whatever it was that ended it."""
    catalog, name = deployment.catalog(), PipelineName(pipeline)
    deadline_ms = catalog.get(name, checkpoint_id).deadline_ms
    if deadline_ms is not None and deadline_ms < clock():
        failure = CheckpointFailureReason.CHECKPOINT_EXPIRED
    return catalog.abort(name, checkpoint_id, reason, failure)


def _head(deployment: Deployment, pipeline: Pipeline, owner: str) -> PipelineHead:
    """Where the pipeline stands; one that has only just got its name stands where it stood before."""
    head = deployment.catalog().head(PipelineName(pipeline.name))
    if head.head is None and pipeline.renamed_from:
        return adopt_former(deployment, pipeline, owner) or head
    return head


def _check_order(pipeline: Pipeline, interval: DataInterval, position: SourcePosition | None) -> None:
    if position is None or position.interval is None:
        return
    last = position.interval
    if interval.start_ms < last.end_ms:
        raise InvalidRequestError(
            f"{pipeline.name}: data interval {range_text(interval)} lies before the end of the last applied one, "
            f"{range_text(last)}, and is not part of the state's history",
            kind="interval-out-of-order",
            hint=f"run {pipeline.name}.restore to a checkpoint before it, then replay",
        )
    if interval.start_ms > last.end_ms and pipeline.on_gap == "fail":
        raise InvalidRequestError(
            f"{pipeline.name}: data interval {range_text(interval)} does not follow the last applied one, "
            f"{range_text(last)}: the events in between would be lost",
            kind="interval-gap",
            hint="backfill the missing intervals first, or set 'on_gap: allow' in the pipeline file",
        )
