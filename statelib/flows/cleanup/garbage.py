"""Garbage collection: delete the files and directories that no checkpoint refers to any more."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from statelib.coordinator.discard import CondemnedFile, DiscardPlan, check_unreferenced, discard_plan
from statelib.crash_points import crash_point
from statelib.errors import ConflictError
from statelib.flows.cleanup.each_pipeline import Troubles, for_each, names
from statelib.flows.recovery.catalog_behind import survey_before_deleting
from statelib.flows.restore.identity import twins_of
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord
from statelib.storage.filesystem.publish import METADATA_NAME
from statelib.storage.names import savepoint_directory
from statelib.storage.ownership import SnapshotPlace, is_of_checkpoints, is_written_by
from statelib.storage.placed_removal import is_below, parent_of
from statelib.storage.registry import PLACES, new_attempt

Point = Callable[[str], None]


BATCH = 100
"""Files deleted between two transactions that say so."""


@dataclass(frozen=True)
class Collected:
    """What gc removed, or would remove, of one pipeline. ``refused``: files that nobody needs and that neither their
    name nor their directory makes the pipeline's own, which gc never touches."""

    pipeline: PipelineName
    checkpoints: tuple[CheckpointId, ...]
    files: tuple[str, ...]
    size_bytes: int
    refused: tuple[str, ...]


def collect_garbage(
    deployment: Deployment,
    pipeline: str | None = None,
    *,
    dry_run: bool = False,
    also: Mapping[PipelineName, Sequence[CheckpointId]] = MappingProxyType({}),
    at: Point = crash_point,
    troubles: Troubles | None = None,
) -> list[Collected]:
    """Remove what DELETING checkpoints alone needed: condemn in one transaction, then ``_metadata``
    first, then data, then the empty directory, then the rows. ``dry_run`` tells what would be removed
    if the checkpoints ``also`` had been let go of too, and changes nothing. Each pipeline by itself; what fails of
    one goes to ``troubles``, as :func:`~statelib.flows.cleanup.each_pipeline.for_each` says.

    Raises ConflictError (``catalog-behind-storage``), CorruptStateError (``discard-of-referenced``),
    and what storage raises; running it again continues where it stopped.
    """
    chosen = names(deployment, pipeline)
    survey = survey_before_deleting(deployment, chosen)

    def of_one(name: PipelineName) -> Collected:
        survey.check(name)
        return _preview(deployment, name, also.get(name, ())) if dry_run else _collect(deployment, name, at)

    return for_each(chosen, of_one, troubles)


def _preview(deployment: Deployment, name: PipelineName, also: Sequence[CheckpointId]) -> Collected:
    would = deployment.catalog().cleanup.preview(name, also)
    return _report(deployment, discard_plan(name, would.checkpoints, would.files, would.referenced), would.files)


def _collect(deployment: Deployment, name: PipelineName, at: Point) -> Collected:
    cleanup = deployment.catalog().cleanup
    run_id = new_attempt()
    at("before condemn")
    twins = twins_of(deployment, name)
    is_ours = partial(_is_ours, deployment.root_uri(), name)
    cleanup.condemn(name, run_id, lambda file: file.created_by not in twins.originals and is_ours(file))
    at("condemned")
    doomed = cleanup.doomed(name)
    going = [record for record in doomed.checkpoints if record.checkpoint_id not in twins.originals]
    plan = discard_plan(name, going, doomed.files, doomed.referenced)
    report = _report(deployment, plan, cleanup.preview(name).files)
    _delete(deployment, plan, report, run_id, at, spared=twins.imported)
    deployment.catalog().browsing.storage.try_to_sample(name)
    return report


def _report(deployment: Deployment, plan: DiscardPlan, unneeded: Sequence[CondemnedFile]) -> Collected:
    """``unneeded``: all that nobody refers to, condemned or not."""
    is_ours = partial(_is_ours, deployment.root_uri(), plan.pipeline)
    allowed = [file for file in plan.files if is_ours(file)]
    return Collected(
        plan.pipeline,
        tuple(record.checkpoint_id for record in plan.checkpoints),
        tuple(file.uri for file in allowed),
        sum(file.size_bytes for file in allowed),
        tuple(sorted(file.uri for file in unneeded if not is_ours(file))),
    )


def _is_ours(root: str, pipeline: PipelineName, file: CondemnedFile) -> bool:
    """Whether a file that nobody refers to is the pipeline's to delete: state of its checkpoints in the storage, or
    what the snapshot that it was recorded for wrote beside its own ``_metadata``."""
    if is_of_checkpoints(file.uri, root, pipeline):
        return True
    placed = file.kind is SnapshotKind.SAVEPOINT or is_below(file.uri, (root,))
    return placed and is_written_by(file.uri, SnapshotPlace(root, file.directory, file.attempt))


def _delete(
    deployment: Deployment,
    plan: DiscardPlan,
    report: Collected,
    run_id: str,
    at: Point,
    *,
    spared: Collection[CheckpointId],
) -> None:
    """``spared``: checkpoints whose rows go and whose files stay, because another row is the same snapshot."""
    cleanup, remover = deployment.catalog().cleanup, deployment.remover()
    for record in plan.checkpoints:
        if record.checkpoint_id in spared or cleanup.is_shared(record):
            continue
        at("before metadata")
        remover.remove_file(f"{record.directory}/{METADATA_NAME}", _roots_of(deployment, record))
    at("metadata deleted")
    check_unreferenced(report.files, cleanup.referenced(plan.pipeline))
    refused = set(report.refused)
    allowed = [file for file in plan.files if file.uri not in refused]
    for start in range(0, len(allowed), BATCH):
        batch = allowed[start : start + BATCH]
        removed = [file for file in batch if file.created_by not in spared]
        for first in range(0, len(removed), remover.files_at_once):
            at("before file")
            chosen = removed[first : first + remover.files_at_once]
            savepoints = {file.directory for file in chosen if file.kind is SnapshotKind.SAVEPOINT}
            remover.remove_files([file.uri for file in chosen], (deployment.root_uri(), *sorted(savepoints)))
        at("files deleted")
        cleanup.confirm_files(plan.pipeline, run_id, [file.uri for file in batch])
        at("files confirmed")
    for record in plan.checkpoints:
        at("before directory")
        _remove_directory(deployment, record)
    at("before checkpoints")
    unfinished = {file.created_by for file in plan.files if file.uri in refused}
    done = [record.checkpoint_id for record in plan.checkpoints if record.checkpoint_id not in unfinished]
    cleanup.confirm_checkpoints(plan.pipeline, done)
    at("done")


def _roots_of(deployment: Deployment, record: CheckpointRecord) -> tuple[str, ...]:
    """Below what the files of a checkpoint may be removed: the storage's root; a savepoint's own directory too."""
    own = (record.directory,) if record.kind is SnapshotKind.SAVEPOINT else ()
    return (deployment.root_uri(), *own)


def is_savepoint_named_by_us(record: CheckpointRecord) -> bool:
    """Its directory is then ours to remove, also in its user's place."""
    name = savepoint_directory(record.pipeline, record.checkpoint_id)
    directory = PLACES.kind(record.directory).normalised(record.directory)
    return record.kind is SnapshotKind.SAVEPOINT and directory.rpartition("/")[2] == name


def _remove_directory(deployment: Deployment, record: CheckpointRecord) -> None:
    directory = PLACES.kind(record.directory).normalised(record.directory)
    roots = (parent_of(directory) if is_savepoint_named_by_us(record) else deployment.root_uri(),)
    if is_below(record.directory, roots):
        deployment.remover().remove_directory(record.directory, roots)


def dispose(
    deployment: Deployment, pipeline: PipelineName, checkpoint_id: CheckpointId, *, dry_run: bool = False
) -> Collected:
    """Delete a savepoint and all that only it needs, wherever its user had it written.

    Raises as :meth:`statelib.catalog.commit.cleanup.Cleanup.dispose`."""
    twin = twins_of(deployment, pipeline).originals.get(checkpoint_id)
    if twin is not None:
        raise ConflictError(
            f"{pipeline}/{checkpoint_id} is in use: {twin.pipeline}/{twin.checkpoint_id} is the same snapshot under "
            f"another path, {twin.directory}",
            kind="in-use",
            hint=f"dispose of {twin.pipeline}/{twin.checkpoint_id} first; what is a checkpoint goes by retention",
        )
    deployment.catalog().cleanup.dispose(pipeline, checkpoint_id, dry_run=dry_run)
    also = {pipeline: (checkpoint_id,)} if dry_run else {}
    (collected,) = collect_garbage(deployment, pipeline, dry_run=dry_run, also=also)
    return collected
