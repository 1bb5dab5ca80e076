"""Pipelines whose file is gone: retention does not know what to keep of them, so their checkpoints stay until a person
says that they may go."""

from collections.abc import Mapping
from dataclasses import dataclass

from statelib.catalog.commit.cleanup import Situation
from statelib.definition.pipeline import Pipeline, load_pipelines
from statelib.errors import InvalidRequestError
from statelib.flows.cleanup.each_pipeline import Troubles, for_each, names
from statelib.flows.cleanup.garbage import Collected, collect_garbage
from statelib.flows.restore.identity import twins_of
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, Owner

_STORED = (CheckpointState.COMPLETED, CheckpointState.QUARANTINED)


@dataclass(frozen=True)
class WithoutFile:
    """A pipeline without a file, and what :func:`discard` would delete of it. ``stays``: what is a user's, or in use.
    ``command``: how to do it; '' where ``reason`` says why it is not offered."""

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
    """Return what is stored of pipelines that have no file any more; changes nothing.

    Each pipeline by itself; what fails of one goes to ``troubles``, as
    :func:`~statelib.flows.cleanup.each_pipeline.for_each` says.
    """
    loaded, broken = load_pipelines(deployment.pipelines_directory)
    files = {file.name: file for file in loaded}
    chosen = [name for name in names(deployment, pipeline) if name not in files]

    def of_one(name: PipelineName) -> WithoutFile:
        reason = f"{broken[0].path} does not load, it may be the file of {name}" if broken else ""
        return _offer(deployment, name, reason or _still_needed(deployment, name, files))

    return [each for each in for_each(chosen, of_one, troubles) if each.checkpoints]


def discard(deployment: Deployment, name: PipelineName, owner: str, *, dry_run: bool = False) -> Collected:
    """Delete all checkpoints of a pipeline whose file is gone, those that are a user's or in use excepted, and cancel
    it, so that nothing begins on them. May be repeated.

    Raises NotFoundError (``no-pipeline``); InvalidRequestError (``pipeline-has-file``: it has one, or may have;
    ``still-needed``: a pipeline that was renamed has not gone on from it yet); ConflictError as
    :func:`~statelib.flows.cleanup.garbage.collect_garbage`, and ``in-use`` or ``fenced`` where somebody works on
    it."""
    loaded, broken = load_pipelines(deployment.pipelines_directory)
    files = {file.name: file for file in loaded}
    if name in files or broken:
        path = files[name].path if name in files else broken[0].path
        raise InvalidRequestError(
            f"pipeline {name}: {path} is its file, or may be as it does not load: only what has no file is discarded",
            kind="pipeline-has-file",
            hint="checkpoint.retain of the file says what to keep, after_termination what becomes of an ended pipeline",
        )
    cleanup = deployment.catalog().cleanup
    chosen, _ = _chosen(deployment, cleanup.situation(name))
    needed = _still_needed(deployment, name, files)
    if needed:
        raise InvalidRequestError(f"pipeline {name}: {needed}", kind="still-needed", hint="run that one first")
    if not dry_run:
        deployment.catalog().suspension.cancel(name, owner)
        situation = cleanup.situation(name)
        chosen, _ = _chosen(deployment, situation)
        cleanup.subsume(name, chosen, situation.head.epoch, terminated=True)
    (collected,) = collect_garbage(deployment, name, dry_run=dry_run, also={name: chosen})
    return collected


def _offer(deployment: Deployment, name: PipelineName, reason: str) -> WithoutFile:
    chosen, stays = _chosen(deployment, deployment.catalog().cleanup.situation(name))
    (would,) = collect_garbage(deployment, name, dry_run=True, also={name: chosen})
    command = "" if reason else f"statelib pipelines discard {name}"
    return WithoutFile(name, chosen, stays, len(would.files), would.size_bytes, command, reason)


def _chosen(deployment: Deployment, situation: Situation) -> tuple[tuple[CheckpointId, ...], tuple[CheckpointId, ...]]:
    """What would go, and what would stay, oldest first."""
    stored = sorted(
        (record for record in situation.records if record.state in _STORED), key=lambda record: record.checkpoint_id
    )
    in_use = situation.in_use | twins_of(deployment, situation.head.pipeline).originals.keys()
    goes = [r.checkpoint_id for r in stored if r.owner is Owner.SYSTEM and r.checkpoint_id not in in_use]
    return tuple(goes), tuple(r.checkpoint_id for r in stored if r.checkpoint_id not in goes)


def _still_needed(deployment: Deployment, name: PipelineName, files: Mapping[str, Pipeline]) -> str:
    """Why a pipeline cannot go: another one has its state under a new name, and no checkpoint of its own yet."""
    for file in files.values():
        if name in file.renamed_from and deployment.catalog().head(PipelineName(file.name)).head is None:
            return f"it was renamed to {file.name}, which has not gone on from it yet"
    return ""
