"""The steps of a checkpoint: begin, (the Spark job), check, then register or abort.

No coordinator process runs between the steps. Each step loads its state from the catalog, does one thing and saves the
result. Any step may be repeated; none undoes a step that has finished.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from statelib.catalog.commit.admission import HEAD_MOVED
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import range_text, source_parts
from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError, StatelibError
from statelib.flows.catalog_behind import check_catalog_complete
from statelib.flows.checkpoint.allocation import allocate_checkpoint
from statelib.flows.checkpoint.next_intervals import first_start
from statelib.flows.checkpoint.readiness import WasUpdated, check_ready
from statelib.flows.gate.judging import judge
from statelib.flows.lifecycle.renaming import head_after_renaming
from statelib.flows.restore.continuation import continued_head
from statelib.flows.restore.quarantine import set_aside
from statelib.flows.wiring import Deployment, now_ms
from statelib.model.checkpoint import DataInterval, SourcePosition
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.moments import moment_of
from statelib.model.quality import QualityResult, Severity, verdict
from statelib.model.record import CheckpointRecord, CheckpointState, PipelineHead, interval_key
from statelib.quality.gate import QualityReport
from statelib.savepoints.commit_facts import commit_facts
from statelib.savepoints.opened import Checkpoint

log = logging.getLogger(__name__)
_TRIES = 3


@dataclass(frozen=True)
class Begun:
    """A checkpoint or savepoint that was begun. ``already_completed``: it was completed before, so that there is
    nothing to do."""

    checkpoint_id: CheckpointId
    already_completed: bool


def begin(
    deployment: Deployment,
    pipeline: Pipeline,
    interval: DataInterval,
    owner: str,
    *,
    assume_ready: bool = False,
    was_updated: WasUpdated | None = None,
) -> Begun:
    """Allocate the checkpoint of one data interval, or return the checkpoint that contains the interval already.
    ``assume_ready``: the caller has waited for the interval's events, so that ``ready`` of the sources is not checked.
    ``was_updated``: as for :func:`~statelib.flows.checkpoint.readiness.check_ready`.

    A refusal is not recorded in the catalog.

    Raises:
        InvalidRequestError: ``bad-interval``; ``interval-out-of-order`` if the state is past the interval;
            ``interval-gap`` if events before the interval would be lost (``on_gap: allow`` accepts that).
        ConflictError: ``catalog-behind-storage`` if the catalog does not have all checkpoints on storage.
        RetryableError: ``source-not-ready`` if the interval's events are not complete.

    It also raises as :func:`~statelib.definition.source.parts.source_parts`,
    :func:`~statelib.flows.restore.continuation.continued_head` and :func:`statelib.catalog.commit.admission.admit`.
    """
    if interval.end_ms <= interval.start_ms:
        raise InvalidRequestError(
            f"data interval {range_text(interval)}: expected start before end", kind="bad-interval"
        )
    ready = None if assume_ready else partial(check_ready, deployment, pipeline, interval, was_updated)
    for _ in range(_TRIES - 1):
        try:
            return _begin(deployment, pipeline, interval, owner, ready)
        except ConflictError as error:  # the interval was compared with a head that is no longer the pipeline's head
            if error.kind != HEAD_MOVED:
                raise
    return _begin(deployment, pipeline, interval, owner, ready)


def _begin(
    deployment: Deployment,
    pipeline: Pipeline,
    interval: DataInterval,
    owner: str,
    check_events: Callable[[], None] | None,
) -> Begun:
    catalog = deployment.catalog()
    name = pipeline.name
    check_catalog_complete(deployment, name)
    head = head_after_renaming(deployment, pipeline, owner)
    done = catalog.applied(name, interval)
    if done is not None:
        return Begun(done.checkpoint_id, already_completed=True)
    source_parts(pipeline, deployment.data, interval)
    continued = continued_head(deployment, pipeline, head)
    if continued is None:
        _log_late_start(pipeline, interval)
    else:
        _check_order(deployment, pipeline, interval, head, continued.opened.position())
    if check_events is not None:
        check_events()
    key = interval_key(interval, head.generation)
    record = allocate_checkpoint(deployment, pipeline, head, owner, key=key, interval=interval)
    return Begun(record.checkpoint_id, record.state is CheckpointState.COMPLETED)


def check(
    deployment: Deployment,
    pipeline: Pipeline,
    checkpoint_id: CheckpointId,
    judged: Callable[[Sequence[QualityResult]], None] = lambda _results: None,
    *,
    source: Checkpoint | None = None,
) -> QualityReport:
    """Prove from storage that the checkpoint is complete, judge it by the pipeline's ``checks``, and return the
    report. The results and the report are recorded whether it passes or not. ``judged``: a callback that receives the
    results before an error is raised. ``source``: the snapshot from which a seed was restored; it is read, too.

    Raises CorruptStateError, which lists each failed expectation: ``gate-failed``, or ``quarantined`` if the checkpoint
    was put into quarantine now or before.
    """
    catalog = deployment.catalog()
    record = catalog.get(pipeline.name, checkpoint_id)
    if record.state is CheckpointState.QUARANTINED:
        raise set_aside(record)
    opened = deployment.open(record)
    lineage = _present_lineage(deployment, record)
    docs = f"{deployment.docs_directory}/{record.pipeline}/chk-{checkpoint_id}-{record.attempt}"
    report = judge(
        deployment,
        pipeline,
        record,
        opened,
        lineage=lineage,
        docs_directory=docs,
        base_proved=bool(lineage) and catalog.gate.has_proved(record.pipeline, lineage[0].checkpoint_id),
        trusts_job=True,
        source=source,
    )
    recorded = opened.manifest is not None and opened.manifest.keys is not None
    catalog.gate.record_results(record.pipeline, checkpoint_id, report.results, None if recorded else report.keys)
    judged(report.results)
    if report.verdict is Severity.QUARANTINE and record.state is CheckpointState.PENDING:
        reason = "; ".join(report.failures)
        facts = commit_facts(opened, report.report_uri)
        raise set_aside(catalog.gate.set_aside(record.pipeline, checkpoint_id, record.epoch, facts, reason))
    if not report.passed:
        raise CorruptStateError(
            f"checkpoint {record.pipeline}/{checkpoint_id} is not complete: {'; '.join(report.failures)}",
            kind="gate-failed",
            hint=_damaged_before(deployment, report, lineage) + _where_to_read(record, report.report_uri),
        )
    return report


def _present_lineage(deployment: Deployment, record: CheckpointRecord) -> list[CheckpointRecord]:
    """Return the records of the base, its base and so on. A checkpoint that was completed before may be checked again
    after retention has deleted its base: then nothing is compared with the base, and the list is empty."""
    if record.base is None:
        return []
    lineage = list(deployment.catalog().lineage(record.pipeline, record.base))
    is_gone = bool(lineage) and lineage[0].state in (CheckpointState.DELETING, CheckpointState.DELETED)
    return [] if is_gone and record.state is CheckpointState.COMPLETED else lineage


def _damaged_before(deployment: Deployment, report: QualityReport, lineage: Sequence[CheckpointRecord]) -> str:
    """Return the way out if a damaged file is one of the base, too, so that every later run fails; otherwise ''."""
    try:
        files = deployment.open(lineage[0]).identities() if lineage else ()
    except StatelibError:
        return ""
    if not any(path in sentence for path in files for sentence in report.failures):
        return ""
    base = lineage[0]
    return (
        f"checkpoint {base.pipeline}/{base.checkpoint_id} needs that file, too: statelib verify -p {base.pipeline} "
        f"shows which checkpoints are whole, and statelib restore {base.pipeline} goes back to one of them; "
    )


def _where_to_read(record: CheckpointRecord, report_uri: str) -> str:
    """Return the hint that names the report with all results, or a command if the report could not be written."""
    return (
        f"report: {report_uri}" if report_uri else f"statelib checkpoints show {record.pipeline}/{record.checkpoint_id}"
    )


def register(
    deployment: Deployment, pipeline: Pipeline, checkpoint_id: CheckpointId, report_uri: str = ""
) -> CheckpointRecord:
    """Register the checkpoint: one transaction, the commit point, makes it COMPLETED and the pipeline's head. Return
    its record.

    Raises CorruptStateError (``gate-failed``) if the gate refused the checkpoint when it last judged it."""
    catalog = deployment.catalog()
    record = catalog.get(pipeline.name, checkpoint_id)
    if verdict(catalog.gate.results(record.pipeline, checkpoint_id)) is Severity.FAIL:
        raise CorruptStateError(
            f"checkpoint {record.pipeline}/{checkpoint_id} was refused by the gate: it cannot be registered",
            kind="gate-failed",
            hint=f"statelib checkpoints show {record.pipeline}/{checkpoint_id} shows the reasons",
        )
    opened = deployment.open(record)
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
    """Abort a pending checkpoint and return its record. Nothing is deleted, and a completed checkpoint stays completed.
    After the deadline of the checkpoint, the recorded failure is CHECKPOINT_EXPIRED, whatever ``failure`` is."""
    catalog, name = deployment.catalog(), PipelineName(pipeline)
    deadline_ms = catalog.get(name, checkpoint_id).deadline_ms
    if deadline_ms is not None and deadline_ms < clock():
        failure = CheckpointFailureReason.CHECKPOINT_EXPIRED
    return catalog.abort(name, checkpoint_id, reason, failure)


def _log_late_start(pipeline: Pipeline, interval: DataInterval) -> None:
    """Log a warning if the first interval of a pipeline begins after ``schedule.start``, as with ``catchup: false``."""
    start_ms = first_start(pipeline, None)
    if start_ms is not None and start_ms < interval.start_ms:
        log.warning(
            "%s: its first interval %s begins after schedule.start: the events from %s on that are before it will be "
            "in no checkpoint", pipeline.name, range_text(interval), moment_of(start_ms).isoformat()
        )  # fmt: skip


def _check_order(
    deployment: Deployment,
    pipeline: Pipeline,
    interval: DataInterval,
    head: PipelineHead,
    position: SourcePosition | None,
) -> None:
    if position is None or position.interval is None:
        return
    last = position.interval
    if interval.start_ms < last.end_ms:
        oldest = deployment.catalog().lineage(pipeline.name, head.head)[-1] if head.head else None
        _check_not_before(pipeline, interval, oldest)
        raise InvalidRequestError(
            f"{pipeline.name}: data interval {range_text(interval)} begins before the end of the last applied one, "
            f"{range_text(last)}, and {_why_not_applied(pipeline, oldest)}",
            kind="interval-out-of-order",
            hint=f"restore a checkpoint before it, then replay: 'statelib restore {pipeline.name} ID' and "
            f"'statelib run {pipeline.name}', or the DAG {pipeline.name}.restore",
        )
    if interval.start_ms > last.end_ms and pipeline.on_gap == "fail":
        raise InvalidRequestError(
            f"{pipeline.name}: data interval {range_text(interval)} does not follow the last applied one, "
            f"{range_text(last)}: the events in between would be lost",
            kind="interval-gap",
            hint=f"{_gap_hint(pipeline, last.end_ms, interval)}; or set 'on_gap: allow' in the pipeline file",
        )


def _check_not_before(pipeline: Pipeline, interval: DataInterval, oldest: CheckpointRecord | None) -> None:
    """Raise InvalidRequestError (``interval-out-of-order``) if an interval is before all of the state's history.
    ``oldest``: its first checkpoint."""
    first = oldest.interval if oldest is not None and oldest.base is None else None
    if first is not None and interval.end_ms <= first.start_ms:
        raise InvalidRequestError(
            f"{pipeline.name}: all checkpoints are after data interval {range_text(interval)}, for the state begins "
            f"with {range_text(first)}",
            kind="interval-out-of-order",
            hint="for earlier events, give the pipeline another name, and run that one from its first interval on",
        )


def _why_not_applied(pipeline: Pipeline, oldest: CheckpointRecord | None) -> str:
    """Return why an early interval does not count as applied. After a rebuild, the catalog may not know all of the
    history."""
    if oldest is None or oldest.base is None:
        return "is not part of the state's history"
    return (
        f"the catalog does not know the history before {pipeline.name}/{oldest.checkpoint_id}, as after a rebuild: the "
        "state may have the interval already, and then there is nothing to do"
    )


def _gap_hint(pipeline: Pipeline, start_ms: int, interval: DataInterval) -> str:
    """Return how the events from ``start_ms`` to the start of ``interval`` can be applied."""
    if pipeline.schedule is not None and pipeline.schedule.asset:
        return update_hint(start_ms, interval.end_ms)
    if pipeline.cron_schedule is not None:
        return (
            f"apply the missing intervals first, with 'statelib run {pipeline.name} --end ...' or a backfill of the DAG"
        )
    bounds = f"--start {moment_of(start_ms).isoformat()} --end {moment_of(interval.start_ms).isoformat()}"
    return f"apply the missing events first, for example with statelib run {pipeline.name} {bounds}"


def update_hint(start_ms: int, end_ms: int) -> str:
    """Return how the events of a range are applied if updates of an asset came out of order or not at all.

    An update for the missing part alone would not help: its run is refused while an earlier part is not applied, and
    the run with the earlier part is refused because it also has the later one."""
    bounds = f"start {moment_of(start_ms).isoformat()} and end {moment_of(end_ms).isoformat()}"
    return (
        f"when all events of the range are there, update the asset once with {bounds}: one run applies all of it, and "
        "the runs that failed have nothing to do if they are cleared"
    )
