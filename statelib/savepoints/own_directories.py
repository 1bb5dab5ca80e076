"""The directories in which the files of a checkpoint of the deployment may be, besides its own directory."""

from collections.abc import Sequence

from statelib.model.checkpoint import CheckpointManifest, Origin
from statelib.model.ids import SAVEPOINTS_DIRECTORY
from statelib.storage.names import CHECKPOINT_PREFIX, savepoint_directory
from statelib.storage.registry import PLACES


def own_roots(directory: str, storage_root: str | None, manifest: CheckpointManifest | None) -> tuple[str, ...]:
    """Return the directories besides ``directory`` in which the files of a checkpoint of the deployment may lie."""
    own_root = pipeline_directory(directory, storage_root)
    if own_root is None or storage_root is None:
        return ()
    if manifest is None or not manifest.origins:
        return (own_root,)
    root = PLACES.kind(storage_root).normalised(storage_root)
    return (own_root, *origin_directories(root, manifest.origins))


def origin_directories(root: str, origins: Sequence[Origin]) -> tuple[str, ...]:
    """Return the directories in which a forked pipeline's checkpoint may have files of its origins: those of the
    original pipelines and savepoints, all below the storage ``root``."""
    pipelines = [f"{root}/{o.pipeline}" for o in origins]
    return (
        *pipelines,
        *(f"{root}/{SAVEPOINTS_DIRECTORY}/{savepoint_directory(o.pipeline, o.checkpoint_id)}" for o in origins),
    )


def pipeline_directory(directory: str, storage_root: str | None) -> str | None:
    """Return ``<root>/<pipeline>`` for the directory ``<root>/<pipeline>/chk-<id>``, and None for any other."""
    if storage_root is None:
        return None
    root = PLACES.kind(storage_root).normalised(storage_root).rstrip("/")
    parent, _, name = directory.rpartition("/")
    grandparent = parent.rpartition("/")[0]
    return parent if grandparent == root and name.startswith(CHECKPOINT_PREFIX) else None
