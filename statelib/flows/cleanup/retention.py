"""Apply retention: decide which checkpoints a pipeline file does not keep, and mark them for gc."""

import contextlib
from dataclasses import dataclass

from statelib.catalog.commit.cleanup import Situation
from statelib.coordinator.retention import RetentionPolicy, retained, subsumed
from statelib.definition.pipeline import Pipeline, load_pipelines
from statelib.errors import ConflictError, CorruptStateError
from statelib.flows.catalog_behind import survey_before_deleting
from statelib.flows.cleanup.each_pipeline import Troubles, for_each, names
from statelib.flows.lifecycle.suspension import status_of
from statelib.flows.publication.waiting import waiting_outputs
from statelib.flows.restore.identity import twins_of
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState
from statelib.model.termination import JobStatus
from statelib.savepoints.verification.snapshots import verify_at

_TRIES = 3


@dataclass(frozen=True)
class RetainedCheckpoint:
    """A checkpoint or savepoint that retention keeps, and why."""

    checkpoint_id: CheckpointId
    because: str


@dataclass(frozen=True)
class Retired:
    """The result of retention for one pipeline. ``checkpoints``: those that gc deletes next. ``kept``: those that
    stay, the newest first. ``policy``: None if the pipeline has no valid file; nothing was done then."""

    pipeline: PipelineName
    policy: RetentionPolicy | None
    checkpoints: tuple[CheckpointId, ...]
    status: JobStatus = JobStatus.RUNNING
    kept: tuple[RetainedCheckpoint, ...] = ()


def retire(
    deployment: Deployment,
    pipeline: str | None = None,
    *,
    dry_run: bool = False,
    troubles: Troubles | None = None,
) -> list[Retired]:
    """Apply ``checkpoint.retain`` of the pipeline files. Checkpoints that it does not keep become DELETING, for gc.

    Each pipeline is handled by itself; its errors go to ``troubles``, as :func:`for_each` describes.

    Raises:
        ConflictError: ``catalog-behind-storage`` if the storage has a checkpoint that the catalog does not have, and
            that belongs to one of the pipelines or needs files of one. ``fenced`` or ``in-use`` if the pipeline
            changed during each of several tries.
        InvalidRequestError: ``bad-pipeline`` if two files have the pipeline's name, because it is ambiguous which
            retention applies.
        CorruptStateError: ``damaged-head`` if checkpoints would be deleted, and ``_metadata`` of the head cannot be
            read, or a file of it is missing or has another size.
    """
    loaded, faults = load_pipelines(deployment.pipelines_directory)
    files, copies = {p.name: p for p in loaded}, {fault.pipeline: fault for fault in faults}
    chosen = names(deployment, pipeline)
    survey = survey_before_deleting(deployment, chosen)

    def retire_pipeline(name: PipelineName) -> Retired:
        if name in copies:
            raise copies[name].error()
        survey.check(name)
        return _retire(deployment, name, files.get(name), dry_run)

    return for_each(chosen, retire_pipeline, troubles)


def _retire(deployment: Deployment, name: PipelineName, file: Pipeline | None, dry_run: bool) -> Retired:
    if file is None:
        return Retired(name, None, ())
    for _ in range(_TRIES - 1):
        # A checkpoint that began or was registered in between changes what may go: decide again.
        with contextlib.suppress(ConflictError):
            return _mark(deployment, name, file, dry_run)
    return _mark(deployment, name, file, dry_run)


def _mark(deployment: Deployment, name: PipelineName, file: Pipeline, dry_run: bool) -> Retired:
    retain = file.checkpoint.retain
    policy = RetentionPolicy(retain.count, retain.days, retain.after_termination)
    situation = deployment.catalog().cleanup.situation(name)
    status = status_of(file, situation)
    in_use = situation.in_use | twins_of(deployment, name).originals.keys()
    waiting = waiting_outputs(deployment, file)
    facts = (policy, situation.records, situation.head.head, in_use, status)
    chosen = subsumed(*facts, waiting=waiting)
    ended = policy.discards_all(status)
    if chosen and not ended:
        _check_head(deployment, situation)
    if chosen and not dry_run:
        deployment.catalog().cleanup.subsume(name, chosen, situation.head.epoch, terminated=ended)
    stays = tuple(RetainedCheckpoint(number, reason) for number, reason in retained(*facts, waiting=waiting).items())
    return Retired(name, policy, chosen, status, stays)


def _check_head(deployment: Deployment, situation: Situation) -> None:
    """Raise CorruptStateError (``damaged-head``) if the head is damaged: the older checkpoints are then needed for a
    restore."""
    head = next((r for r in situation.records if r.checkpoint_id == situation.head.head), None)
    if head is None or head.state is not CheckpointState.COMPLETED:
        return
    problems = verify_at(head.directory, own=True, read_data=False, storage_root=deployment.storage_root).problems
    if problems:
        name = f"{head.pipeline}/{head.checkpoint_id}"
        raise CorruptStateError(
            f"{name}, the head of {head.pipeline}, is damaged: {problems[0]}; no older checkpoint is deleted",
            kind="damaged-head",
            hint=f"statelib verify {name} names what is wrong; statelib restore {head.pipeline} goes back to an older "
            "one",
        )
