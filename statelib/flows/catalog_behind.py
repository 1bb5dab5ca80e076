"""Find checkpoints on storage that the catalog has no rows of, because it was lost or is an old backup.

Nothing may then be begun or deleted. The storage is listed before the catalog is read, so that a checkpoint that is
published meanwhile is not mistaken for a missing one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from statelib.errors import ConflictError, CorruptStateError, NotFoundError, StatelibError
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName, is_pipeline_name
from statelib.storage.names import METADATA_NAME, checkpoint_directory, checkpoint_number
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


def _unregistered(deployment: Deployment, name: PipelineName) -> list[str]:
    """Return the directories of the pipeline's published checkpoints whose ids the catalog has not allocated, the
    oldest first."""
    remover, own = deployment.remover(), f"{deployment.root_uri()}/{name}"
    names = (uri.rpartition("/")[2] for uri in remover.list_directories(own))
    numbers = sorted(number for number in map(checkpoint_number, names) if number is not None)
    next_id = deployment.catalog().rebuilding.next_id(name) if numbers else 1
    newer = [f"{own}/{checkpoint_directory(number)}" for number in numbers if number >= next_id]
    # A begin that was not committed leaves an empty directory.
    return [uri for uri in newer if any(file.path == METADATA_NAME for file in remover.list_files(uri))]


def _needed(deployment: Deployment, directory: str, names: Collection[PipelineName]) -> set[PipelineName]:
    """Return the pipelines that own files that the checkpoint refers to. If it cannot be read, it is lost already and
    needs nothing."""
    try:
        manifest = deployment.open_at(directory).manifest
    except (CorruptStateError, NotFoundError):
        return set()
    files = () if manifest is None else manifest.files
    uris = [PLACES.file_uri(directory, file.path) for file in files]
    return {name for name in names if any(PLACES.is_below(uri, (f"{deployment.root_uri()}/{name}",)) for uri in uris)}


def _behind(needed: PipelineName, name: PipelineName, directory: str) -> ConflictError:
    return ConflictError(
        f"{needed}: {directory} is on storage, but not in the catalog: the catalog is older than the storage",
        kind="catalog-behind-storage",
        hint=f"statelib catalog rebuild --merge -p {name} registers it; if it is left out there, add --give-up "
        f"{name}/{checkpoint_number(directory.rpartition('/')[2])}; until then nothing is begun or deleted",
    )
