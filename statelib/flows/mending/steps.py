"""The steps of a correction: plan it, then begin its checkpoint. The further steps are those of any checkpoint."""

from collections.abc import Callable, Collection, Iterator, Sequence

from statelib.definition.checks.checkpoint.mendable import reasons_not_to_mend
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import range_text, source_parts
from statelib.errors import ConflictError, InvalidRequestError, NotFoundError
from statelib.flows.catalog_behind import check_catalog_complete
from statelib.flows.checkpoint.allocation import allocate_checkpoint
from statelib.flows.checkpoint.kept_deltas import changed_states, later_intervals, mendable_intervals
from statelib.flows.checkpoint.steps import Begun
from statelib.flows.lifecycle.renaming import head_after_renaming
from statelib.flows.mending.plan import MendPlan
from statelib.flows.restore.continuation import continued_head
from statelib.flows.wiring import Deployment, now_ms
from statelib.functions.mending.kept_delta import interval_of_delta
from statelib.model.checkpoint import DataInterval, SideDataRecord, SnapshotKind
from statelib.model.handles import ByteStreamStateHandle
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.moments import moment_of
from statelib.model.record import CheckpointRecord, CheckpointState, Owner, PipelineHead, mend_key
from statelib.savepoints.opened import Checkpoint


def plan_mend(
    deployment: Deployment, pipeline: Pipeline, interval: DataInterval, *, clock: Callable[[], int] = now_ms
) -> MendPlan:
    """Return the plan of the correction of an interval. Nothing is changed.

    Raises:
        InvalidRequestError: ``not-mendable`` if the pipeline or its definition does not allow it, ``no-delta`` if the
            head has no delta of the interval. Both name the commands of a replay.
        NotFoundError: ``no-checkpoint`` if the pipeline has no state.
        ConflictError: ``checkpoint-pending``.

    It also raises as :func:`~statelib.definition.source.parts.source_parts` and
    :func:`~statelib.flows.restore.continuation.continued_head`.
    """
    catalog, name = deployment.catalog(), pipeline.name
    head = catalog.head(name)
    if head.head is None:
        raise NotFoundError(f"pipeline {name} has no state to mend", kind="no-checkpoint")
    record = catalog.get(name, head.head)
    replay = _replay(name, interval, catalog.lineage(name, head.head))
    _check_definition(pipeline, replay)
    _check_nothing_pending(name, catalog.list(name, (CheckpointState.PENDING,)), mend_key(interval, head.head), clock())
    continued = continued_head(deployment, pipeline, head)
    opened = deployment.open(record) if continued is None else continued.opened
    _check_same_states(pipeline, opened, replay)
    _check_kept(pipeline, opened, interval, replay)
    later = later_intervals(pipeline, opened, interval)
    parts = source_parts(pipeline, deployment.data, interval)
    return MendPlan(
        pipeline=name,
        checkpoint_id=record.checkpoint_id,
        start_ms=interval.start_ms,
        end_ms=interval.end_ms,
        sources=tuple(dict.fromkeys(part.place for part in parts)),
        later=len(later),
        delta_bytes=sum(_size(part) for part in _deltas(opened, (interval, *later))),
        state_bytes=record.size_bytes or 0,
    )


def interval_to_mend(deployment: Deployment, pipeline: Pipeline, start_ms: int) -> DataInterval:
    """Return the interval that begins at a moment: one in the history of the head, or one of which the head keeps a
    delta, as the first checkpoint of a fork does.

    Raises InvalidRequestError (``bad-interval``) if there is none, NotFoundError (``no-checkpoint``) without state."""
    catalog, name = deployment.catalog(), pipeline.name
    head = catalog.head(name).head
    if head is None:
        raise NotFoundError(f"pipeline {name} has no state to mend", kind="no-checkpoint")
    for record in catalog.lineage(name, head):
        if record.interval is not None and record.interval.start_ms == start_ms:
            return record.interval
    for interval in mendable_intervals(pipeline, deployment.open(catalog.get(name, head))):
        if interval.start_ms == start_ms:
            return interval
    raise InvalidRequestError(
        f"{name}: no interval in the history of its state begins at {moment_of(start_ms).isoformat()}",
        kind="bad-interval",
        hint=f"statelib checkpoints list -p {name} --all shows the intervals",
    )


def preview_record(deployment: Deployment, pipeline: Pipeline, plan: MendPlan) -> CheckpointRecord:
    """Return the record that the checkpoint of a correction would have. It is not in the catalog.

    Raises ConflictError (``head-moved``)."""
    head = deployment.catalog().head(pipeline.name)
    base = _check_head(plan, head)
    return CheckpointRecord(
        pipeline=head.pipeline,
        checkpoint_id=CheckpointId(base + 1),
        kind=SnapshotKind.CHECKPOINT,
        state=CheckpointState.PENDING,
        owner=Owner.SYSTEM,
        epoch=head.epoch,
        key=mend_key(plan.interval, base),
        generation=head.generation,
        base=base,
        interval=None,
        strategy=pipeline.checkpoint.strategy,
        parallelism=head.parallelism or pipeline.parallelism,
        directory="",
        created_at_ms=0,
    )


def begin_mend(deployment: Deployment, pipeline: Pipeline, plan: MendPlan, owner: str) -> Begun:
    """Allocate the checkpoint that corrects the interval of the plan. It has the position of the head. A pending
    checkpoint of the same correction is superseded: it is of an earlier try.

    Raises as :func:`plan_mend`, ConflictError (``head-moved`` if the pipeline has another head than the plan,
    ``catalog-behind-storage``), and as :func:`statelib.catalog.commit.admission.admit`."""
    check_catalog_complete(deployment, pipeline.name)
    head = head_after_renaming(deployment, pipeline, owner)
    plan_mend(deployment, pipeline, plan.interval)
    base = _check_head(plan, head)
    key, note = mend_key(plan.interval, base), f"mends {range_text(plan.interval)}"
    record = allocate_checkpoint(deployment, pipeline, head, owner, key=key, mends=plan.interval, note=note)
    return Begun(record.checkpoint_id, already_completed=False)


def _check_head(plan: MendPlan, head: PipelineHead) -> CheckpointId:
    """Return the head. Raise ConflictError (``head-moved``) if it is not that of the plan."""
    if head.head is None or head.head != plan.checkpoint_id:
        raise ConflictError(
            f"the plan to mend {plan.pipeline} builds on checkpoint {plan.checkpoint_id}, the head is {head.head}",
            kind="head-moved",
            hint="plan it again",
        )
    return head.head


def _check_definition(pipeline: Pipeline, replay: str) -> None:
    reasons = list(reasons_not_to_mend(pipeline))
    if pipeline.checkpoint.mendable is None:
        reasons.append("checkpoint.mendable is not set, so that no interval is kept")
    if reasons:
        raise InvalidRequestError(
            f"pipeline {pipeline.name} cannot be mended: {'; '.join(reasons)}", kind="not-mendable", hint=replay
        )


def _check_nothing_pending(name: PipelineName, pending: Sequence[CheckpointRecord], key: str, time_ms: int) -> None:
    """Raise ConflictError (``checkpoint-pending``) if another checkpoint than one with this ``key`` is pending, and its
    deadline has not passed."""
    for record in pending:
        is_over = record.deadline_ms is not None and record.deadline_ms < time_ms
        if record.kind is SnapshotKind.CHECKPOINT and record.key != key and not is_over:
            ends = (
                "" if record.deadline_ms is None else f", at the latest at {moment_of(record.deadline_ms).isoformat()}"
            )
            raise ConflictError(
                f"checkpoint {record.checkpoint_id} of {name} is under way: a correction would abort it",
                kind="checkpoint-pending",
                hint=f"mend the interval when its run has ended{ends}; if the run was killed, run its interval again",
            )


def _check_same_states(pipeline: Pipeline, opened: Checkpoint, replay: str) -> None:
    """Raise InvalidRequestError (``not-mendable``) if the states are defined in another way than in the head."""
    changed = changed_states(pipeline, opened)
    if changed or len(pipeline.states) != len(opened.schema().states):
        what = f"states {', '.join(changed)}" if changed else "the set of states"
        raise InvalidRequestError(
            f"{pipeline.name}: {what} changed in the pipeline file since {opened.directory} was written",
            kind="not-mendable",
            hint=replay,
        )


def _check_kept(pipeline: Pipeline, opened: Checkpoint, interval: DataInterval, replay: str) -> None:
    intervals = mendable_intervals(pipeline, opened)
    if interval in intervals:
        return
    intervals_text = "none"
    if intervals:
        intervals_text = f"those in {range_text(DataInterval(intervals[0].start_ms, intervals[-1].end_ms))}"
    raise InvalidRequestError(
        f"{pipeline.name}: {opened.directory} keeps no delta of interval {range_text(interval)}, it keeps "
        f"{intervals_text}: they are kept for checkpoint.mendable, up to a change of a state, a restored savepoint or "
        "a delta that was too large",
        kind="no-delta",
        hint=replay,
    )


def _replay(name: PipelineName, interval: DataInterval, lineage: Sequence[CheckpointRecord]) -> str:
    """Return the commands that replay the intervals from this one on. ``lineage``: the records of the head's history,
    the newest first. A checkpoint is not named if a later correction concerns an interval that it has already: the
    replay would lose it."""
    ends = [record.interval.end_ms for record in lineage if record.interval]
    run = f"statelib run {name} --end {moment_of(max(ends, default=interval.end_ms)).isoformat()}"
    first_ms = interval.start_ms
    for number, record in enumerate(lineage):
        end_ms = next((older.interval.end_ms for older in lineage[number:] if older.interval), None)
        if end_ms is not None and end_ms <= first_ms and record.state is CheckpointState.COMPLETED:
            return f"replay: statelib restore {name} {record.checkpoint_id}, then {run}"
        first_ms = min(first_ms, record.mends.start_ms if record.mends else first_ms)
    return f"replay: statelib restore {name} with a savepoint from before {moment_of(first_ms).isoformat()}, then {run}"


def _deltas(opened: Checkpoint, intervals: Collection[DataInterval]) -> Iterator[SideDataRecord]:
    """Yield the pieces of the deltas of some intervals, one per subtask and state."""
    for record in opened.manifest.side_data if opened.manifest else ():
        if interval_of_delta(record.name) in intervals:
            yield record


def _size(record: SideDataRecord) -> int:
    handle = record.handle
    return len(handle.data) if isinstance(handle, ByteStreamStateHandle) else handle.size_bytes
