"""The check that a snapshot holds every file that its manifest names, before the catalog records any of them.

A manifest that comes from elsewhere cannot be trusted: the catalog deletes the recorded files of a snapshot together
with the snapshot, so a manifest could name files of others and have them deleted.
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
    is_written_by,
    own_directory,
)
from statelib.storage.registry import PLACES
from statelib.storage.uris import shown


def check_files(opened: Checkpoint) -> None:
    """Check the directory of a snapshot with a manifest, and every path in its manifest and its handles. No file is
    opened.

    A snapshot holds the files that its own attempt wrote beside its ``_metadata``. A checkpoint in its own directory
    of the checkpoint storage may also hold files of other checkpoints of its pipeline, and files of the checkpoints and
    savepoints that the pipeline was forked from.

    Raises InvalidRequestError: ``misplaced-snapshot`` (the directory belongs to another snapshot), ``foreign-file`` (a
    path in the manifest), ``outside-root`` (a path in a handle)."""
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
    """Return whether the snapshot at ``place`` holds the file, by the rules of :func:`check_files`."""
    if is_written_by(uri, place):
        return True
    own = place.root and own_directory(place.root, manifest.pipeline, manifest.checkpoint_id) == place.directory
    if not own or manifest.kind is not SnapshotKind.CHECKPOINT:
        return False
    pipelines = {manifest.pipeline, *(origin.pipeline for origin in manifest.origins)}
    savepoints = {(origin.pipeline, origin.checkpoint_id) for origin in manifest.origins}
    return is_in_savepoint(uri, place.root, savepoints) or any(
        is_of_checkpoints(uri, place.root, name) for name in pipelines
    )


def _check_handles(opened: Checkpoint) -> None:
    """Raise InvalidRequestError if a handle refers to a file outside the directories that a run may read."""
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
