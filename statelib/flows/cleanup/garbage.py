"""Garbage collection: delete the files and directories that no checkpoint refers to any more.

Each step may be interrupted anywhere and run again. A decision is recorded before the first byte is deleted, a file
that is missing counts as deleted, and only then is its deletion recorded. ``at`` is called with the name of each point
where this matters; tests end the process there.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType

from statelib.coordinator.discard import CondemnedFile, DiscardPlan, check_unreferenced, discard_plan
from statelib.crash_points import crash_point
from statelib.errors import ConflictError, CorruptStateError, NotFoundError, UnsupportedError
from statelib.flows.catalog_behind import has_all_snapshots, needed_without_rows, survey_before_deleting
from statelib.flows.cleanup.each_pipeline import Troubles, for_each, names
from statelib.flows.restore.identity import twins_of
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord
from statelib.storage.names import METADATA_NAME, savepoint_directory
from statelib.storage.ownership import SnapshotPlace, is_of_checkpoints, is_written_by, source_of
from statelib.storage.registry import PLACES, new_attempt

Point = Callable[[str], None]
Needed = Callable[[], frozenset[str]]
"""A function that returns the URIs of the files that snapshots without a row in the catalog need."""


BATCH = 100
"""The number of files that are deleted between two transactions that record it."""

REFUSED = "its place is not that of a file of the pipeline, or a checkpoint that the catalog does not have may need it"
"""The reason why gc does not delete a file that no checkpoint in the catalog needs."""


@dataclass(frozen=True)
class CollectedGarbage:
    """The checkpoints and files of one pipeline that gc deleted, or would delete. ``files``: their data files.
    ``size_bytes``: the size of these and of ``metadata``, their ``_metadata`` files. ``refused``: unneeded files that
    gc does not delete, because neither their name nor their directory proves that they belong to the pipeline, or
    because a checkpoint that the catalog does not have may need them: :data:`REFUSED`."""

    pipeline: PipelineName
    checkpoints: tuple[CheckpointId, ...]
    files: tuple[str, ...]
    size_bytes: int
    refused: tuple[str, ...]
    metadata: tuple[str, ...] = ()


def collect_garbage(
    deployment: Deployment,
    pipeline: str | None = None,
    *,
    dry_run: bool = False,
    also: Mapping[PipelineName, Sequence[CheckpointId]] = MappingProxyType({}),
    at: Point = crash_point,
    troubles: Troubles | None = None,
) -> list[CollectedGarbage]:
    """Delete what only DELETING checkpoints needed. The files are condemned in one transaction; then ``_metadata`` is
    deleted, then data files, then the empty directory, then the rows. ``dry_run``: change nothing, and return what
    would be deleted if the checkpoints ``also`` were DELETING too. Each pipeline is handled by itself; its errors go to
    ``troubles``, as :func:`~statelib.flows.cleanup.each_pipeline.for_each` describes.

    Raises ConflictError (``catalog-behind-storage``), CorruptStateError (``discard-of-referenced``), and as the
    storage. A repeated call continues where this one stopped.
    """
    chosen = names(deployment, pipeline)
    survey = survey_before_deleting(deployment, chosen)
    needed = cache(partial(needed_without_rows, deployment))

    def collect(name: PipelineName) -> CollectedGarbage:
        survey.check(name)
        if dry_run:
            return _preview(deployment, name, also.get(name, ()), needed)
        return _collect(deployment, name, needed, at)

    return for_each(chosen, collect, troubles)


def _preview(
    deployment: Deployment, name: PipelineName, also: Sequence[CheckpointId], needed: Needed
) -> CollectedGarbage:
    would = deployment.catalog().cleanup.preview(name, also)
    plan = discard_plan(name, would.checkpoints, would.files, would.referenced)
    return _report(deployment, plan, would.files, needed)


def _collect(deployment: Deployment, name: PipelineName, needed: Needed, at: Point) -> CollectedGarbage:
    cleanup = deployment.catalog().cleanup
    run_id = new_attempt()
    at("before condemn")
    twins = twins_of(deployment, name)
    deletable = _deletable(deployment, name, cleanup.preview(name).files, needed)
    cleanup.condemn(name, run_id, lambda file: file.created_by not in twins.originals and file.uri in deletable)
    at("condemned")
    doomed = cleanup.doomed(name)
    going = [record for record in doomed.checkpoints if record.checkpoint_id not in twins.originals]
    plan = discard_plan(name, going, doomed.files, doomed.referenced)
    report = _report(deployment, plan, cleanup.preview(name).files, needed)
    _delete(deployment, plan, report, run_id, at, spared=twins.imported)
    deployment.catalog().browsing.storage.try_to_sample(name)
    return report


def _report(
    deployment: Deployment, plan: DiscardPlan, unneeded: Sequence[CondemnedFile], needed: Needed
) -> CollectedGarbage:
    """Return the result of deleting by the plan. ``unneeded``: the files that nothing refers to, condemned or not."""
    deletable = _deletable(deployment, plan.pipeline, unneeded, needed)
    allowed = [file for file in plan.files if file.uri in deletable]
    metadata = _metadata_sizes(deployment, plan)
    return CollectedGarbage(
        plan.pipeline,
        tuple(record.checkpoint_id for record in plan.checkpoints),
        tuple(file.uri for file in allowed),
        sum(file.size_bytes for file in allowed) + sum(metadata.values()),
        tuple(sorted(file.uri for file in unneeded if file.uri not in deletable)),
        tuple(metadata),
    )


def _metadata_sizes(deployment: Deployment, plan: DiscardPlan) -> dict[str, int]:
    """Return the sizes of the ``_metadata`` files that are deleted with the checkpoints of a plan, by their URIs. That
    of a directory in which another checkpoint lives stays."""
    cleanup = deployment.catalog().cleanup
    sizes = cleanup.metadata_bytes(plan.pipeline) if plan.checkpoints else {}
    going = {(plan.pipeline, record.checkpoint_id) for record in plan.checkpoints}
    return {
        f"{record.directory}/{METADATA_NAME}": sizes[record.checkpoint_id]
        for record in plan.checkpoints
        if record.checkpoint_id in sizes and going.issuperset(cleanup.living_in(record.directory))
    }


def _deletable(
    deployment: Deployment, pipeline: PipelineName, unneeded: Sequence[CondemnedFile], needed: Needed
) -> frozenset[str]:
    """Return the URIs of those unneeded files that gc may delete, because no snapshot without a row needs them: files
    that belong to the pipeline, and files of another pipeline whose snapshots the catalog has all. After a rebuild,
    files of a pipeline may belong to a fork of it, which is then the oldest checkpoint that needs them."""
    root = deployment.root_uri()
    chosen = {file.uri for file in unneeded if _is_ours(root, pipeline, file)}
    others = {file.uri: source_of(file.uri, root) for file in unneeded if file.uri not in chosen}
    complete = {name for name in {*others.values()} if name is not None and has_all_snapshots(deployment, name)}
    chosen |= {uri for uri, name in others.items() if name in complete}
    return frozenset(chosen - needed() if chosen else ())


def _is_ours(root: str, pipeline: PipelineName, file: CondemnedFile) -> bool:
    """Return whether an unneeded file belongs to the pipeline. It must be state of the pipeline's checkpoints in the
    storage, or written beside ``_metadata`` by the snapshot that it is recorded for."""
    if is_of_checkpoints(file.uri, root, pipeline):
        return True
    placed = file.kind is SnapshotKind.SAVEPOINT or PLACES.is_below(file.uri, (root,))
    return placed and is_written_by(file.uri, SnapshotPlace(root, file.directory, file.attempt))


def _delete(
    deployment: Deployment,
    plan: DiscardPlan,
    report: CollectedGarbage,
    run_id: str,
    at: Point,
    *,
    spared: Collection[CheckpointId],
) -> None:
    """Delete by the plan. ``spared``: checkpoints whose rows are deleted and whose files stay, because another row is
    the same snapshot."""
    cleanup, remover = deployment.catalog().cleanup, deployment.remover()
    for record in plan.checkpoints:
        if record.checkpoint_id in spared or cleanup.is_shared(record) or _is_replaced(deployment, record):
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


def _is_replaced(deployment: Deployment, record: CheckpointRecord) -> bool:
    """Return whether the directory of a snapshot outside the storage has another snapshot now, which a user put there.
    Its ``_metadata`` is not deleted."""
    if PLACES.is_below(record.directory, (deployment.root_uri(),)):
        return False
    try:
        manifest = deployment.open_at(record.directory).manifest
    except (CorruptStateError, NotFoundError):
        return False
    except UnsupportedError:
        return True
    return manifest is None or manifest.attempt != record.attempt


def _roots_of(deployment: Deployment, record: CheckpointRecord) -> tuple[str, ...]:
    """Return the directories below which files of the checkpoint may be deleted: the storage's root, and the directory
    of a savepoint."""
    own = (record.directory,) if record.kind is SnapshotKind.SAVEPOINT else ()
    return (deployment.root_uri(), *own)


def is_savepoint_named_by_us(record: CheckpointRecord) -> bool:
    """Return whether the record is of a savepoint in a directory that statelib named. Such a directory may be deleted,
    also in a place that its user chose."""
    name = savepoint_directory(record.pipeline, record.checkpoint_id)
    directory = PLACES.kind(record.directory).normalised(record.directory)
    return record.kind is SnapshotKind.SAVEPOINT and directory.rpartition("/")[2] == name


def _remove_directory(deployment: Deployment, record: CheckpointRecord) -> None:
    directory = PLACES.kind(record.directory).normalised(record.directory)
    roots = (PLACES.parent_of(directory) if is_savepoint_named_by_us(record) else deployment.root_uri(),)
    if PLACES.is_below(record.directory, roots):
        deployment.remover().remove_directory(record.directory, roots)


def dispose(
    deployment: Deployment, pipeline: PipelineName, checkpoint_id: CheckpointId, *, dry_run: bool = False
) -> CollectedGarbage:
    """Delete a savepoint and all files that only it needs, wherever it was written.

    Raises ConflictError (``in-use``) if another row is the same snapshot, and as
    :meth:`statelib.catalog.commit.cleanup.Cleanup.dispose`."""
    twin = twins_of(deployment, pipeline).originals.get(checkpoint_id)
    if twin is not None:
        raise ConflictError(
            f"{pipeline}/{checkpoint_id} is in use: {twin.pipeline}/{twin.checkpoint_id} is the same snapshot under "
            f"another path, {twin.directory}",
            kind="in-use",
            hint=f"dispose of {twin.pipeline}/{twin.checkpoint_id} first; retention deletes it if it is a checkpoint",
        )
    deployment.catalog().cleanup.dispose(pipeline, checkpoint_id, dry_run=dry_run)
    also = {pipeline: (checkpoint_id,)} if dry_run else {}
    (collected,) = collect_garbage(deployment, pipeline, dry_run=dry_run, also=also)
    return collected
