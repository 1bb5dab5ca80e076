"""Checkpoints on storage that the catalog never heard of: it was lost, or is an old backup. Nothing may begin or go.

The storage is listed first and the catalog asked then: what is published meanwhile is not taken for forgotten.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from statelib.errors import ConflictError, CorruptStateError, NotFoundError, StatelibError
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName, is_pipeline_name
from statelib.savepoints.opened import open_checkpoint
from statelib.storage.filesystem.publish import METADATA_NAME
from statelib.storage.names import checkpoint_directory, checkpoint_number
from statelib.storage.placed_removal import is_below
from statelib.storage.registry import PLACES


def check_remembered(deployment: Deployment, name: PipelineName) -> None:
    """Raise ConflictError (``catalog-behind-storage``) if the catalog does not know all of a pipeline's checkpoints:
    the next one would build on an older state than there is, or on none."""
    if found := _forgotten(deployment, name):
        raise _behind(name, name, found[-1])


@dataclass(frozen=True)
class Survey:
    """What keeps files of pipelines from being deleted. ``errors``: by pipeline, the first reason; ``of_all``: a reason
    that holds for every pipeline."""

    errors: Mapping[PipelineName, StatelibError]
    of_all: StatelibError | None = None

    def check(self, name: PipelineName) -> None:
        """Raise ConflictError (``catalog-behind-storage``) if a checkpoint of the pipeline, or one that needs files of
        it, lies on storage and is not known to the catalog; or what the storage raised where nobody can tell."""
        error = self.errors.get(name, self.of_all)
        if error is not None:
            raise error


def survey_before_deleting(deployment: Deployment, names: Collection[PipelineName]) -> Survey:
    """Look for what the catalog never heard of: checkpoints of ``names``, and of each pipeline that stands on files of
    theirs, as a fork does; the catalog may have forgotten it altogether.

    A directory that cannot be listed is the trouble of its own pipeline alone, as long as the catalog knows that one:
    what its checkpoints need is recorded then. One that the catalog does not know may be a forgotten fork of any
    other."""
    root, known = deployment.root_uri(), {*deployment.catalog().pipelines()}
    listed = {uri.rpartition("/")[2] for uri in deployment.remover().list_directories(root)}
    errors: dict[PipelineName, StatelibError] = {}
    of_all: StatelibError | None = None
    for name in sorted({PipelineName(text) for text in listed if is_pipeline_name(text)}.union(names)):
        try:
            for directory in _forgotten(deployment, name):
                for needed in {name}.intersection(names) or _needed(deployment, directory, names):
                    errors.setdefault(needed, _behind(needed, name, directory))
        except StatelibError as error:
            errors.setdefault(name, error)
            of_all = of_all if name in known else error
    return Survey(errors, of_all)


def _forgotten(deployment: Deployment, name: PipelineName) -> list[str]:
    """Directories of the pipeline's published checkpoints whose ids the catalog has not given out, oldest first."""
    remover, own = deployment.remover(), f"{deployment.root_uri()}/{name}"
    names = (uri.rpartition("/")[2] for uri in remover.list_directories(own))
    numbers = sorted(number for number in map(checkpoint_number, names) if number is not None)
    next_id = deployment.catalog().rebuilding.next_id(name) if numbers else 1
    unheard = [f"{own}/{checkpoint_directory(number)}" for number in numbers if number >= next_id]
    # A begin that came to nothing leaves an empty directory.
    return [uri for uri in unheard if any(file.path == METADATA_NAME for file in remover.list_files(uri))]


def _needed(deployment: Deployment, directory: str, names: Collection[PipelineName]) -> set[PipelineName]:
    """Which of the pipelines own files that a checkpoint refers to; one that cannot be read is lost already."""
    try:
        manifest = open_checkpoint(directory, storage_root=deployment.storage_root).manifest
    except (CorruptStateError, NotFoundError):
        return set()
    files = () if manifest is None else manifest.files
    uris = [PLACES.file_uri(directory, file.path) for file in files]
    return {name for name in names if any(is_below(uri, (f"{deployment.root_uri()}/{name}",)) for uri in uris)}


def _behind(needed: PipelineName, name: PipelineName, directory: str) -> ConflictError:
    return ConflictError(
        f"{needed}: {directory} lies on storage, but the catalog never heard of it: it is older than the storage",
        kind="catalog-behind-storage",
        hint=f"statelib catalog rebuild --merge -p {name} enters it; if it is left out there, add --give-up "
        f"{name}/{checkpoint_number(directory.rpartition('/')[2])}; until then nothing is begun or deleted",
    )
