"""Whose a file is, told by its URI alone: its name holds the attempt that wrote it, its directory the pipeline.

A manifest is only text, and so is a row that was made of one. What neither its name nor its directory makes a
snapshot's own is never taken for it: not by adopting it, not by deleting it.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.storage.names import (
    SAVEPOINTS_DIRECTORY,
    SHARED_DIRECTORY,
    TASK_OWNED_DIRECTORY,
    checkpoint_directory,
    checkpoint_number,
    savepoint_directory,
)

ATTEMPT_PREFIX = 24
"""Digits of an attempt that all its Spark tasks share; the last eight are the task's own."""

_STATE_FILE = re.compile(r"([0-9a-f]{32})-[0-9]+-[0-9]+")


@dataclass(frozen=True)
class SnapshotPlace:
    """Where a snapshot lies and who wrote it. ``root``: the deployment's storage. ``directory`` and ``root`` are
    normalised URIs."""

    root: str
    directory: str
    attempt: AttemptId | None


def is_written_by(uri: str, place: SnapshotPlace) -> bool:
    """Whether a file lies beside the snapshot's ``_metadata`` and has the name of a task of its attempt."""
    directory, _, name = uri.rpartition("/")
    writer = _STATE_FILE.fullmatch(name)
    if writer is None or not place.attempt or directory != place.directory.rstrip("/"):
        return False
    return writer[1][:ATTEMPT_PREFIX] == place.attempt[:ATTEMPT_PREFIX]


def is_of_checkpoints(uri: str, root: str, pipeline: PipelineName) -> bool:
    """Whether a file has the name and the directory of state that the pipeline's checkpoints wrote, and that its tasks
    do not own."""
    directory, _, name = uri.rpartition("/")
    parent, _, last = directory.rpartition("/")
    ours = last == SHARED_DIRECTORY or checkpoint_number(last) is not None
    return bool(_STATE_FILE.fullmatch(name)) and ours and parent == f"{root.rstrip('/')}/{pipeline}"


def is_task_owned_by(uri: str, root: str, pipeline: PipelineName) -> bool:
    """Whether a file is state that a task of the pipeline owns."""
    directory, _, name = uri.rpartition("/")
    return bool(_STATE_FILE.fullmatch(name)) and directory == f"{root.rstrip('/')}/{pipeline}/{TASK_OWNED_DIRECTORY}"


def is_misplaced(place: SnapshotPlace, pipeline: PipelineName, checkpoint_id: CheckpointId) -> bool:
    """Whether a snapshot lies within the storage in a directory that is not for the one that it says it is."""
    root = place.root.rstrip("/")
    if f"{place.directory}/".startswith(f"{root}/{SAVEPOINTS_DIRECTORY}/"):
        return False
    if place.directory.rpartition("/")[2] == savepoint_directory(pipeline, checkpoint_id):
        return False
    own = own_directory(root, pipeline, checkpoint_id)
    return f"{place.directory}/".startswith(f"{root}/") and place.directory != own


def own_directory(root: str, pipeline: PipelineName, checkpoint_id: CheckpointId) -> str:
    """The directory of a pipeline's checkpoint in the storage."""
    return f"{root.rstrip('/')}/{pipeline}/{checkpoint_directory(checkpoint_id)}"


def is_in_savepoint(uri: str, root: str, savepoints: Collection[tuple[PipelineName, CheckpointId]]) -> bool:
    """Whether a file lies in the storage's directory of one of the savepoints, and has the name of state."""
    directory, _, name = uri.rpartition("/")
    places = {f"{root.rstrip('/')}/{SAVEPOINTS_DIRECTORY}/{savepoint_directory(*each)}" for each in savepoints}
    return bool(_STATE_FILE.fullmatch(name)) and directory in places
