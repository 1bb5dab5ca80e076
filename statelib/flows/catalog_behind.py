"""Find checkpoints on storage that the catalog has no rows of, because it was lost or is an old backup.

Nothing may then be begun or deleted. The storage is listed before the catalog is read, so that a checkpoint that is
published meanwhile is not mistaken for a missing one.
"""

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from statelib.errors import ConflictError, CorruptStateError, NotFoundError, StatelibError
from statelib.flows.wiring import Deployment
from statelib.model.ids import SAVEPOINTS_DIRECTORY, CheckpointId, PipelineName, is_pipeline_name
from statelib.storage.names import METADATA_NAME, checkpoint_directory, checkpoint_number, savepoint_parts
from statelib.storage.ownership import source_of
from statelib.storage.registry import PLACES


def check_catalog_complete(deployment: Deployment, name: PipelineName) -> None:
    """Raise ConflictError (``catalog-behind-storage``) if the catalog does not have all checkpoints of a pipeline. Its
    next checkpoint would continue from an older state than the newest one, or from none."""
    if directories := _unregistered(deployment, name):
        raise _behind(name, name, directories[-1])


@dataclass(frozen=True)
class Survey:
    """The reasons why files of pipelines may not be deleted. ``errors``: the first reason per pipeline. ``of_all``: a
    reason that holds for every pipeline; None if there is none."""

    errors: Mapping[PipelineName, StatelibError]
    of_all: StatelibError | None = None

    def check(self, name: PipelineName) -> None:
        """Raise ConflictError (``catalog-behind-storage``) if the storage has a checkpoint that the catalog does not
        have, and that belongs to the pipeline or needs files of it. Raise the storage's error if this could not be
        found out."""
        error = self.errors.get(name, self.of_all)
        if error is not None:
            raise error


def survey_before_deleting(deployment: Deployment, names: Collection[PipelineName]) -> Survey:
    """Look for checkpoints that the catalog does not have: those of ``names``, and those of other pipelines that need
    files of theirs, as forks do.

    An error while listing the directory of a pipeline that the catalog has concerns that pipeline alone: the catalog
    records what its checkpoints need. A pipeline that the catalog does not have may be a fork of any other, so that an
    error in its directory concerns all pipelines."""
    root, registered = deployment.root_uri(), {*deployment.catalog().pipelines()}
    listed = {uri.rpartition("/")[2] for uri in deployment.remover().list_directories(root)}
    errors: dict[PipelineName, StatelibError] = {}
    of_all: StatelibError | None = None
    for name in sorted({PipelineName(text) for text in listed if is_pipeline_name(text)}.union(names)):
        try:
            for directory in _unregistered(deployment, name):
                for needed in {name}.intersection(names) or _needed(deployment, directory, names):
                    errors.setdefault(needed, _behind(needed, name, directory))
        except StatelibError as error:
            errors.setdefault(name, error)
            of_all = of_all if name in registered else error
    return Survey(errors, of_all)


def has_all_snapshots(deployment: Deployment, name: PipelineName) -> bool:
    """Return whether the catalog has all checkpoints and savepoints in the storage that may need files of the pipeline:
    its own, and those of other pipelines."""
    try:
        survey_before_deleting(deployment, (name,)).check(name)
    except ConflictError:
        return False
    stored = [*_stored(deployment, name).items(), *_savepoints(deployment, name)]
    registered = {record.checkpoint_id for record in deployment.catalog().list(name)}
    return not any(_is_published(deployment, uri) for number, uri in stored if number not in registered)


def needed_without_rows(deployment: Deployment) -> frozenset[str]:
    """Return the URIs of all files that are needed by snapshots in the storage which have no row in the catalog, such
    as those that a rebuild left out. They may be registered later.

    A pipeline whose directory cannot be listed is passed over. Raises UnsupportedError for a snapshot of a later
    version."""
    root, remover = deployment.root_uri(), deployment.remover()
    directories = [uri for uri in remover.list_directories(f"{root}/{SAVEPOINTS_DIRECTORY}") if _is_savepoint(uri)]
    for uri in sorted(remover.list_directories(root)):
        if is_pipeline_name(name := uri.rpartition("/")[2]):
            with contextlib.suppress(StatelibError):
                directories += _stored(deployment, PipelineName(name)).values()
    without_row = {*directories} - deployment.catalog().rebuilding.with_rows(directories)
    return frozenset(uri for directory in without_row for uri in _files_of(deployment, directory))


def _unregistered(deployment: Deployment, name: PipelineName) -> list[str]:
    """Return the directories of the pipeline's published checkpoints whose ids the catalog has not allocated, the
    oldest first."""
    stored = _stored(deployment, name)
    next_id = deployment.catalog().rebuilding.next_id(name) if stored else 1
    return [uri for number, uri in stored.items() if number >= next_id and _is_published(deployment, uri)]


def _stored(deployment: Deployment, name: PipelineName) -> dict[CheckpointId, str]:
    """Return the directories on storage of the pipeline's checkpoints by id, the oldest first."""
    own = f"{deployment.root_uri()}/{name}"
    names = (uri.rpartition("/")[2] for uri in deployment.remover().list_directories(own))
    numbers = sorted(number for number in map(checkpoint_number, names) if number is not None)
    return {CheckpointId(number): f"{own}/{checkpoint_directory(number)}" for number in numbers}


def _savepoints(deployment: Deployment, name: PipelineName) -> list[tuple[CheckpointId, str]]:
    """Return ids and directories of the pipeline's savepoints in the storage."""
    directories = sorted(deployment.remover().list_directories(f"{deployment.root_uri()}/{SAVEPOINTS_DIRECTORY}"))
    named = ((savepoint_parts(uri.rpartition("/")[2]), uri) for uri in directories)
    return [(savepoint[1], uri) for savepoint, uri in named if savepoint and savepoint[0] == name]


def _is_savepoint(directory: str) -> bool:
    return savepoint_parts(directory.rpartition("/")[2]) is not None


def _is_published(deployment: Deployment, directory: str) -> bool:
    """Return whether a snapshot's directory has its ``_metadata``. A begin that was not committed leaves an empty
    directory."""
    return any(file.path == METADATA_NAME for file in deployment.remover().list_files(directory))


def _needed(deployment: Deployment, directory: str, names: Collection[PipelineName]) -> set[PipelineName]:
    """Return the pipelines whose files the checkpoint refers to."""
    sources = {source_of(uri, deployment.root_uri()) for uri in _files_of(deployment, directory)}
    return {name for name in names if name in sources}


def _files_of(deployment: Deployment, directory: str) -> list[str]:
    """Return the URIs of the files that a snapshot refers to. If it cannot be read, it is lost already and needs
    nothing."""
    try:
        manifest = deployment.open_at(directory).manifest
    except (CorruptStateError, NotFoundError):
        return []
    return [] if manifest is None else [PLACES.file_uri(directory, file.path) for file in manifest.files]


def _behind(needed: PipelineName, name: PipelineName, directory: str) -> ConflictError:
    return ConflictError(
        f"{needed}: {directory} is on storage, but not in the catalog: the catalog is older than the storage",
        kind="catalog-behind-storage",
        hint=f"statelib catalog rebuild --merge -p {name} registers it; if it is left out there, add --give-up "
        f"{name}/{checkpoint_number(directory.rpartition('/')[2])}; until then nothing is begun or deleted",
    )
