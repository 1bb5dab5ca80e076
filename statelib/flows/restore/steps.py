"""The steps of a restore: find the checkpoint, plan what happens, then make it the pipeline's head."""

from collections.abc import Sequence

from statelib.catalog.catalog import Catalog
from statelib.catalog.commit.restoring import NO_HEAD
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.flows.restore.adoption import adopt_snapshot, check_adoptable
from statelib.flows.restore.continuation import Continuation, continuation
from statelib.flows.restore.estimate import newest_throughput
from statelib.flows.restore.identity import row_of
from statelib.flows.restore.layout import RestoreLayout, lay_out
from statelib.flows.restore.plan import RestorePlan, SubtaskRead
from statelib.flows.restore.quarantine import check_not_quarantined
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.key_groups import check_parallelism
from statelib.model.record import CheckpointRecord, CheckpointState, ClaimMode, PipelineHead
from statelib.restore.volume import bytes_to_read, entries_to_read
from statelib.savepoints.opened import Checkpoint
from statelib.storage.registry import PLACES


def find_checkpoint(
    deployment: Deployment, pipeline: PipelineName, checkpoint: str
) -> tuple[CheckpointRecord | None, Checkpoint]:
    """Return the record and the snapshot of a checkpoint, which is given by its id or by the path of its directory. The
    record is None if the snapshot is not in the pipeline's rows of the catalog. If the catalog has the snapshot under
    another path, it is opened there.

    Raises NotFoundError; InvalidRequestError (``not-completed``, ``quarantined``) if it never completed, whichever
    pipeline took it."""
    catalog = deployment.catalog()
    if not checkpoint.isdecimal():
        opened = deployment.open_at(checkpoint)
        row = row_of(deployment, pipeline, opened)
        if row is None:
            return None, opened
        record = _completed(row, opened.directory)
        if record.directory.rstrip("/") != opened.directory.rstrip("/"):
            opened = deployment.open_at(record.directory)
        return (record if record.pipeline == pipeline else None), opened
    record = _completed(catalog.get(pipeline, CheckpointId(int(checkpoint))))
    return record, deployment.open(record)


def _completed(record: CheckpointRecord, directory: str = "") -> CheckpointRecord:
    check_not_quarantined(record)
    if directory and record.state is CheckpointState.DELETED:
        raise InvalidRequestError(
            f"{directory} is the snapshot {record.pipeline}/{record.checkpoint_id}, which was deleted; its files are "
            "there again, but a deleted one is not restored in its place",
            kind="not-completed",
            hint="copy the whole directory to another place, and restore that path",
        )
    if record.state is not CheckpointState.COMPLETED:
        raise InvalidRequestError(
            f"checkpoint {record.pipeline}/{record.checkpoint_id} is {record.state}: "
            "only a COMPLETED one can be restored",
            kind="not-completed",
            hint=f"statelib checkpoints list --pipeline {record.pipeline}",
        )
    return record


def plan_restore(
    deployment: Deployment, pipeline: Pipeline, checkpoint: str, parallelism: int | None, claim_mode: ClaimMode
) -> RestorePlan:
    """Return the plan of a restore. Nothing is changed. State that the next run could not restore is refused here.

    Raises NotFoundError, InvalidRequestError (``not-completed``, ``bad-parallelism``, ``backend-changed``,
    ``max-parallelism-changed``, ``state-schema-changed``, ``non-restored-state``, ``other-pipeline``,
    ``other-operator``, and what :func:`~statelib.savepoints.verification.held_files.check_files` raises),
    UnsupportedError (``foreign-snapshot``).
    """
    name = pipeline.name
    record, opened = find_checkpoint(deployment, name, checkpoint)
    source = _check_restorable(pipeline, opened)
    if claim_mode is ClaimMode.CLAIM and not checkpoint.isdecimal():
        _check_claimed(checkpoint, opened)
    catalog = deployment.catalog()
    head = catalog.head(name)
    new = parallelism if parallelism is not None else head.parallelism or pipeline.parallelism
    check_parallelism(new, pipeline.max_parallelism)
    position, manifest = opened.position(), opened.manifest
    abandoned = _abandoned(catalog, head, record)
    reads = _reads(lay_out(opened, new, pipeline), pipeline.backend)
    throughput = newest_throughput(deployment, name)
    return RestorePlan(
        pipeline=name,
        checkpoint_id=record.checkpoint_id if record else None,
        directory=opened.directory,
        claim_mode=claim_mode,
        parallelism=new,
        old_parallelism=source.opened.keyed_operator().parallelism,
        keys=record.keys if record else manifest.total_keys if manifest else None,
        entries=manifest.entries if manifest else None,
        replay_from_ms=position.interval.end_ms if position and position.interval else None,
        replay_until_ms=max((r.interval.start_ms for r in abandoned if r.interval), default=None),
        abandoned=tuple(r.checkpoint_id for r in abandoned),
        aborts=tuple(sorted(r.checkpoint_id for r in catalog.list(name, (CheckpointState.PENDING,)))),
        reads=reads,
        states=source.resolutions(),
        non_restored=source.non_restored(),
        estimate_ms=throughput.slowest_ms(read.size_bytes for read in reads) if throughput else None,
        estimated_from=throughput.checkpoint_id if throughput else None,
        drained=manifest is not None and manifest.drained,
        lost_corrections=_lost_corrections(abandoned, position.interval if position else None),
        head=head.head,
        chosen_parallelism=parallelism,
    )


def _lost_corrections(abandoned: Sequence[CheckpointRecord], newest: DataInterval | None) -> tuple[int, ...]:
    """Return the starts of the intervals that abandoned checkpoints have corrected, and that are not replayed because
    they do not end after the ``newest`` interval of the restored state."""
    mended = {record.mends for record in abandoned if record.mends is not None}
    return tuple(sorted(each.start_ms for each in mended if newest is not None and each.end_ms <= newest.end_ms))


def _reads(layout: RestoreLayout, backend: str) -> tuple[SubtaskRead, ...]:
    return tuple(
        SubtaskRead(
            subtask=subtask,
            key_groups=str(key_groups),
            handles=tuple(str(source.handle.key_group_range) for source in sources),
            size_bytes=bytes_to_read(layout.schema, key_groups, sources, backend),
            entries=entries_to_read(key_groups, sources),
        )
        for subtask, (key_groups, sources) in enumerate(zip(layout.ranges, layout.sources, strict=True))
    )


def _check_restorable(pipeline: Pipeline, opened: Checkpoint) -> Continuation:
    """Return the continuation of the pipeline from the snapshot, which it must have taken, under this or a former
    name."""
    name, manifest = pipeline.name, opened.manifest
    if manifest is not None and manifest.pipeline not in (name, *pipeline.renamed_from):
        raise InvalidRequestError(
            f"{opened.directory} is a snapshot of pipeline {manifest.pipeline}, not of {name}",
            kind="other-pipeline",
            hint=f"if this was the name of {name}, set 'renamed_from: {manifest.pipeline}' in its pipeline file",
        )
    return check_state(pipeline, opened)


def check_state(pipeline: Pipeline, opened: Checkpoint) -> Continuation:
    """Return the continuation of the pipeline from the snapshot, whichever pipeline took it. Raises as
    :func:`plan_restore`."""
    check_adoptable(pipeline.name, opened)
    return continuation(pipeline, opened).check()


def _check_claimed(path: str, opened: Checkpoint) -> None:
    """Raise InvalidRequestError (``known-elsewhere``) if the path leads to another directory than the snapshot's. Only
    a snapshot that is where its user named it may be claimed, because the system deletes it in time."""
    place = path.removesuffix("/_metadata")
    if PLACES.same_place(opened.directory, place) is not True:
        raise InvalidRequestError(
            f"{place} is the snapshot that the catalog has in {opened.directory}, or a copy of it",
            kind="known-elsewhere",
            hint="claim that by its id, or restore with claim mode NO_CLAIM",
        )


def apply_restore(
    deployment: Deployment, pipeline: Pipeline, plan: RestorePlan, owner: str, *, approved: bool = False
) -> PipelineHead:
    """Make the plan's checkpoint the pipeline's head, from which the next run continues. Return the new head. It may be
    repeated: a snapshot that was registered since it was planned is not registered again, and a plan with a key that
    was carried out changes nothing, so that runs since then stay.

    Raises as :meth:`~statelib.catalog.catalog.Catalog.restore`. ``approved``: a person has agreed to the plan, so that
    it is refused (``plan-changed``) if a run or a correction has moved the head since it was made."""
    catalog = deployment.catalog()
    name = pipeline.name
    checkpoint_id = plan.checkpoint_id
    if checkpoint_id is None:
        record, opened = find_checkpoint(deployment, name, plan.directory)
        record = record or adopt_snapshot(deployment, name, continuation(pipeline, opened).opened)
        checkpoint_id = record.checkpoint_id
    claim = plan.claim_mode == ClaimMode.CLAIM
    replaced = CheckpointId(plan.head or NO_HEAD) if approved else None
    target = CheckpointId(checkpoint_id)
    return catalog.restore(name, target, plan.chosen_parallelism, owner, claim=claim, instead_of=replaced, key=plan.key)


def _abandoned(catalog: Catalog, head: PipelineHead, record: CheckpointRecord | None) -> list[CheckpointRecord]:
    if head.head is None:
        return []
    common = {r.checkpoint_id for r in catalog.lineage(head.pipeline, record.checkpoint_id)} if record else set()
    return [r for r in catalog.lineage(head.pipeline, head.head) if r.checkpoint_id not in common]


def rehearsal_layout(
    deployment: Deployment, pipeline: Pipeline, checkpoint: str, parallelism: int | None
) -> RestoreLayout:
    """Return the layout that the tasks of a rehearsal restore. Raises as :func:`plan_restore`."""
    plan = plan_restore(deployment, pipeline, checkpoint, parallelism, ClaimMode.NO_CLAIM)
    opened = deployment.open_at(plan.directory)
    return lay_out(opened, plan.parallelism, pipeline)
