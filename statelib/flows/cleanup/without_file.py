"""Pipelines without a pipeline file: retention keeps all their checkpoints until a person discards them."""

from collections.abc import Mapping
from dataclasses import dataclass

from statelib.catalog.commit.cleanup import Situation
from statelib.definition.pipeline import Pipeline, load_pipelines
from statelib.errors import InvalidRequestError
from statelib.flows.cleanup.each_pipeline import Troubles, for_each, names
from statelib.flows.cleanup.garbage import CollectedGarbage, collect_garbage
from statelib.flows.restore.identity import twins_of
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, Owner

_STORED = (CheckpointState.COMPLETED, CheckpointState.QUARANTINED)


@dataclass(frozen=True)
class WithoutFile:
    """A pipeline without a file, and the checkpoints that :func:`discard` would delete. ``stays``: those that belong
    to a user or are in use. ``command``: the command that discards it, '' if it cannot be discarded; ``reason`` then
    says why."""

    pipeline: PipelineName
    checkpoints: tuple[CheckpointId, ...]
    stays: tuple[CheckpointId, ...]
    files: int
    size_bytes: int
    command: str
    reason: str


def without_file(
    deployment: Deployment, pipeline: str | None = None, troubles: Troubles | None = None
) -> list[WithoutFile]:
    """Return the stored checkpoints of pipelines that have no file. Nothing is changed. Each pipeline is handled by
    itself; its errors go to ``troubles``, as :func:`~statelib.flows.cleanup.each_pipeline.for_each` describes."""
    loaded, broken = load_pipelines(deployment.pipelines_directory)
    files = {file.name: file for file in loaded}
    chosen = [name for name in names(deployment, pipeline) if name not in files]

    def offer(name: PipelineName) -> WithoutFile:
        reason = f"{broken[0].path} does not load, it may be the file of {name}" if broken else ""
        return _offer(deployment, name, reason or _still_needed(deployment, name, files))

    return [each for each in for_each(chosen, offer, troubles) if each.checkpoints]


def discard(deployment: Deployment, name: PipelineName, owner: str, *, dry_run: bool = False) -> CollectedGarbage:
    """Delete all checkpoints of a pipeline without a file, except those that belong to a user or are in use. The
    pipeline is cancelled first, so that no checkpoint begins meanwhile. May be repeated.

    Raises:
        NotFoundError: ``no-pipeline``.
        InvalidRequestError: ``pipeline-has-file`` if it has a file, or if a file does not load that may be its own.
            ``still-needed`` if a renamed pipeline has not continued from it yet.
        ConflictError: As :func:`~statelib.flows.cleanup.garbage.collect_garbage`, and ``in-use`` or ``fenced`` if
            another process works on the pipeline.
    """
    loaded, broken = load_pipelines(deployment.pipelines_directory)
    files = {file.name: file for file in loaded}
    if name in files or broken:
        path = files[name].path if name in files else broken[0].path
        raise InvalidRequestError(
            f"pipeline {name}: {path} is its file, or may be, as it does not load: only pipelines without a file are"
            " discarded",
            kind="pipeline-has-file",
            hint="checkpoint.retain of the file sets what is kept, after_termination what is kept of an ended pipeline",
        )
    cleanup = deployment.catalog().cleanup
    needed = _still_needed(deployment, name, files)
    if needed:
        raise InvalidRequestError(f"pipeline {name}: {needed}", kind="still-needed", hint="run that one first")
    if dry_run:
        return _preview(deployment, cleanup.situation(name))
    deployment.catalog().suspension.cancel(name, owner)
    situation = cleanup.situation(name)
    cleanup.subsume(name, _chosen(deployment, situation)[0], situation.head.epoch, terminated=True)
    (collected,) = collect_garbage(deployment, name)
    return collected


def _preview(deployment: Deployment, situation: Situation) -> CollectedGarbage:
    """Return what a discard would delete. It cancels the pipeline first, so nothing holds files of a pending
    checkpoint's base."""
    name, (chosen, _) = situation.head.pipeline, _chosen(deployment, situation)
    also = (*chosen, *situation.aborted_by_cancellation)
    (would,) = collect_garbage(deployment, name, dry_run=True, also={name: also})
    return would


def _offer(deployment: Deployment, name: PipelineName, reason: str) -> WithoutFile:
    situation = deployment.catalog().cleanup.situation(name)
    (chosen, stays), would = _chosen(deployment, situation), _preview(deployment, situation)
    command = "" if reason else f"statelib pipelines discard {name}"
    return WithoutFile(name, chosen, stays, len(would.files) + len(would.metadata), would.size_bytes, command, reason)


def _chosen(deployment: Deployment, situation: Situation) -> tuple[tuple[CheckpointId, ...], tuple[CheckpointId, ...]]:
    """Return (ids that would be deleted, ids that would stay), the oldest first, after the pipeline is cancelled."""
    stored = sorted(
        (record for record in situation.records if record.state in _STORED), key=lambda record: record.checkpoint_id
    )
    in_use = situation.in_use_after_cancellation | twins_of(deployment, situation.head.pipeline).originals.keys()
    goes = [r.checkpoint_id for r in stored if r.owner is Owner.SYSTEM and r.checkpoint_id not in in_use]
    return tuple(goes), tuple(r.checkpoint_id for r in stored if r.checkpoint_id not in goes)


def _still_needed(deployment: Deployment, name: PipelineName, files: Mapping[PipelineName, Pipeline]) -> str:
    """Return why the pipeline cannot be discarded, '' if it can: it was renamed, and the new name has no checkpoint
    yet."""
    for file in files.values():
        if name in file.renamed_from and deployment.catalog().head(file.name).head is None:
            return f"it was renamed to {file.name}, which has no checkpoint yet"
    return ""
