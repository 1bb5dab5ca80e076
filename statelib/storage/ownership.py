"""The owner of a file, derived from its URI alone. The file's name contains the attempt that wrote it, its directory
belongs to a pipeline.

The paths in a manifest, and in catalog rows made from it, are not trusted. A file is adopted or deleted as part of a
snapshot only if its name and its directory prove that it belongs to the snapshot.
"""

from collections.abc import Collection
from dataclasses import dataclass

from statelib.model.ids import (
    ATTEMPT_PREFIX,
    SAVEPOINTS_DIRECTORY,
    AttemptId,
    CheckpointId,
    PipelineName,
    is_pipeline_name,
)
from statelib.storage.names import (
    SHARED_DIRECTORY,
    STATE_FILE,
    TASK_OWNED_DIRECTORY,
    checkpoint_directory,
    checkpoint_number,
    savepoint_directory,
    savepoint_parts,
)


@dataclass(frozen=True)
class SnapshotPlace:
    """The place of a snapshot and the attempt that wrote it. ``root`` is the root of the deployment's storage.
    ``directory`` and ``root`` are normalised URIs."""

    root: str
    directory: str
    attempt: AttemptId | None


def is_written_by(uri: str, place: SnapshotPlace) -> bool:
    """Return whether a file lies beside the snapshot's ``_metadata`` and its name shows that a task of the snapshot's
    attempt wrote it."""
    directory, _, name = uri.rpartition("/")
    writer = STATE_FILE.fullmatch(name)
    if writer is None or not place.attempt or directory != place.directory.rstrip("/"):
        return False
    return writer[1][:ATTEMPT_PREFIX] == place.attempt[:ATTEMPT_PREFIX]


def is_of_checkpoints(uri: str, root: str, pipeline: PipelineName) -> bool:
    """Return whether a file has the name and the directory of state that the pipeline's checkpoints wrote."""
    directory, _, name = uri.rpartition("/")
    parent, _, last = directory.rpartition("/")
    of_checkpoints = last in (SHARED_DIRECTORY, TASK_OWNED_DIRECTORY) or checkpoint_number(last) is not None
    return bool(STATE_FILE.fullmatch(name)) and of_checkpoints and parent == f"{root.rstrip('/')}/{pipeline}"


def source_of(uri: str, root: str) -> PipelineName | None:
    """Return the pipeline that a state file in the storage belongs to by its directory, which is that of the pipeline's
    checkpoints or of a savepoint of it. Return None for any other file."""
    first, _, rest = uri.removeprefix(f"{root.rstrip('/')}/").partition("/")
    if is_pipeline_name(first) and is_of_checkpoints(uri, root, PipelineName(first)):
        return PipelineName(first)
    savepoint = savepoint_parts(rest.partition("/")[0])
    return savepoint[0] if savepoint and is_in_savepoint(uri, root, (savepoint,)) else None


def is_misplaced(place: SnapshotPlace, pipeline: PipelineName, checkpoint_id: CheckpointId) -> bool:
    """Return whether a snapshot lies within the storage, but in a directory of another checkpoint than the pipeline
    and the id in its ``_metadata``."""
    root = place.root.rstrip("/")
    if f"{place.directory}/".startswith(f"{root}/{SAVEPOINTS_DIRECTORY}/"):
        return False
    if place.directory.rpartition("/")[2] == savepoint_directory(pipeline, checkpoint_id):
        return False
    own = own_directory(root, pipeline, checkpoint_id)
    return f"{place.directory}/".startswith(f"{root}/") and place.directory != own


def own_directory(root: str, pipeline: PipelineName, checkpoint_id: CheckpointId) -> str:
    """Return the directory of a pipeline's checkpoint in the storage."""
    return f"{root.rstrip('/')}/{pipeline}/{checkpoint_directory(checkpoint_id)}"


def is_in_savepoint(uri: str, root: str, savepoints: Collection[tuple[PipelineName, CheckpointId]]) -> bool:
    """Return whether a file lies in the storage's directory of one of ``savepoints``, and has the name of a state
    file."""
    directory, _, name = uri.rpartition("/")
    directories = {f"{root.rstrip('/')}/{SAVEPOINTS_DIRECTORY}/{savepoint_directory(*each)}" for each in savepoints}
    return bool(STATE_FILE.fullmatch(name)) and directory in directories
