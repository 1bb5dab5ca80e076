"""Checkpoints on storage that the catalog never heard of: it was lost, or is an old backup. Nothing may begin or go.

The storage is listed first and the catalog asked then: what is published meanwhile is not taken for forgotten.
"""

from collections.abc import Collection

from statelib.errors import ConflictError, CorruptStateError, NotFoundError
from statelib.flows.opened import open_checkpoint
from statelib.flows.wiring import PLACES, Deployment
from statelib.model.ids import PipelineName
from statelib.storage.names import checkpoint_directory, checkpoint_number
from statelib.storage.placed_removal import is_below
from statelib.storage.publish import METADATA_NAME


def check_remembered(deployment: Deployment, name: PipelineName) -> None:
    """Raise ConflictError (``catalog-behind-storage``) if the catalog does not know all of a pipeline's checkpoints:
    the next one would build on an older state than there is, or on none."""
    if found := _forgotten(deployment, name):
        raise _behind(name, name, found[-1])


def check_before_deleting(deployment: Deployment, names: Collection[PipelineName]) -> None:
    """The same of all ``names``, and of each pipeline that stands on files of theirs, as a fork does: the catalog may
    have forgotten it altogether."""
    root = deployment.root_uri()
    there = {PipelineName(uri.rpartition("/")[2]) for uri in deployment.remover().list_directories(root)}
    for name in sorted(there.union(names)):
        for directory in _forgotten(deployment, name):
            for needed in sorted({name}.intersection(names) or _needed(deployment, directory, names)):
                raise _behind(needed, name, directory)


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
