"""What a snapshot may call its own: every file that its manifest names is judged before a catalog hears of one.

A manifest from elsewhere is text of a stranger's. A catalog that believed it would delete, once the snapshot goes,
whatever is named there.
"""

from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import CheckpointManifest, SnapshotKind
from statelib.model.handles import ByteStreamStateHandle
from statelib.savepoints.opened import Checkpoint
from statelib.storage.ownership import (
    SnapshotPlace,
    is_in_savepoint,
    is_misplaced,
    is_of_checkpoints,
    is_task_owned_by,
    is_written_by,
    own_directory,
)
from statelib.storage.registry import PLACES
from statelib.storage.uris import shown


def check_files(opened: Checkpoint) -> None:
    """Judge where a snapshot with a manifest lies, and every file that its manifest or its handles name; no file is
    opened.

    A snapshot holds what its own attempt wrote beside its ``_metadata``. A checkpoint in its own directory of the
    storage holds files of its pipeline's other checkpoints too, and of those that it was forked from.
    Raises InvalidRequestError: ``misplaced-snapshot``, ``foreign-file`` (the manifest), ``outside-root`` (a handle)."""
    manifest = opened.manifest
    assert manifest is not None
    place = SnapshotPlace(opened.storage_root or "", opened.directory, manifest.attempt)
    name = manifest.pipeline, manifest.checkpoint_id
    if place.root and is_misplaced(place, *name):
        raise InvalidRequestError(
            f"{opened.directory} holds a snapshot that says it is {name[0]}/{name[1]}: in the checkpoint storage, "
            f"expected that in {own_directory(place.root, *name)}",
            kind="misplaced-snapshot",
            hint="a copy of a snapshot belongs outside the checkpoint storage",
        )
    for file in manifest.files:
        uri = PLACES.file_uri(opened.directory, file.path)
        if not _is_held(uri, place, manifest):
            raise InvalidRequestError(
                f"{opened.directory}: the manifest names {shown(file.path)}, which this snapshot did not write",
                kind="foreign-file",
                hint="a snapshot from elsewhere must be whole in its own directory: take a savepoint where it was "
                "written, and restore that",
            )
    _check_handles(opened)


def _is_held(uri: str, place: SnapshotPlace, manifest: CheckpointManifest) -> bool:
    if is_written_by(uri, place):
        return True
    own = place.root and own_directory(place.root, manifest.pipeline, manifest.checkpoint_id) == place.directory
    if not own or manifest.kind is not SnapshotKind.CHECKPOINT:
        return False
    pipelines = {manifest.pipeline, *(origin.pipeline for origin in manifest.origins)}
    savepoints = {(origin.pipeline, origin.checkpoint_id) for origin in manifest.origins}
    return is_in_savepoint(uri, place.root, savepoints) or any(
        is_of_checkpoints(uri, place.root, name) or is_task_owned_by(uri, place.root, name) for name in pipelines
    )


def _check_handles(opened: Checkpoint) -> None:
    reader = opened.reader()
    for stream in opened.streams():
        if isinstance(stream, ByteStreamStateHandle):
            continue
        try:
            reader.locate(stream)
        except InvalidRequestError as error:
            raise InvalidRequestError(
                f"{opened.directory} refers to {shown(stream.path)}, which no run could read: {error.message}",
                kind=error.kind,
                hint="an incremental checkpoint goes with the storage that it shares files with: restore it there, or "
                "take a savepoint there and restore that one",
            ) from error
