"""The snapshots that lie on storage, found without the catalog."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from statelib.errors import CorruptStateError, NotFoundError, UnsupportedError
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest, SnapshotKind
from statelib.model.ids import CheckpointId, PipelineName
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.storage.filesystem.publish import METADATA_NAME
from statelib.storage.names import CHECKPOINT_PREFIX, SAVEPOINTS_DIRECTORY, checkpoint_directory, checkpoint_number
from statelib.storage.registry import PLACES

_CHECKPOINT = re.compile(rf"([^/]+)/({CHECKPOINT_PREFIX}[0-9]+)/.+")
_SAVEPOINT = re.compile(rf"{SAVEPOINTS_DIRECTORY}/savepoint-(.+)-([0-9]{{1,16}})/.+")


@dataclass(frozen=True)
class LeftOut:
    """A directory that no snapshot is taken from. ``damaged``: something is wrong with it."""

    directory: str
    reason: str
    damaged: bool


@dataclass(frozen=True)
class FoundSnapshot:
    opened: Checkpoint
    manifest: CheckpointManifest


@dataclass(frozen=True)
class OnStorage:
    """``highest``: by pipeline, the highest id that any directory of a checkpoint is named by; ``savepoints``: all ids
    that directories of savepoints in the storage are named by."""

    found: tuple[FoundSnapshot, ...]
    left_out: tuple[LeftOut, ...]
    highest: dict[PipelineName, int]
    savepoints: dict[PipelineName, set[int]]


def on_storage(deployment: Deployment, also: Sequence[str] = ()) -> OnStorage:
    """Every snapshot below the deployment's storage, and every savepoint in the directories ``also``.

    Reads each ``_metadata``, nothing else. Of two snapshots with the same id the first is taken, a checkpoint before
    savepoints."""
    root = deployment.root_uri()
    paths = [file.path for file in deployment.remover().list_files(root)]
    highest: dict[PipelineName, int] = {}
    savepoints: dict[PipelineName, set[int]] = {}
    for path in paths:
        if match := _CHECKPOINT.fullmatch(path):
            name = PipelineName(match[1])
            highest[name] = max(highest.get(name, 0), checkpoint_number(match[2]) or 0)
        elif match := _SAVEPOINT.fullmatch(path):
            savepoints.setdefault(PipelineName(match[1]), set()).add(int(match[2]))
    places = [f"{root}/{p}" for p in paths if p.endswith(f"/{METADATA_NAME}") and p.count("/") == 2]
    places.sort(key=lambda place: checkpoint_number(place.split("/")[-2]) is None)
    places += [place for directory in also for place in _metadata_in(deployment, directory)]
    found: dict[tuple[PipelineName, CheckpointId], FoundSnapshot] = {}
    left_out = []
    for place in places:
        got = _opened(deployment, place.removesuffix(f"/{METADATA_NAME}"), root)
        if isinstance(got, LeftOut):
            left_out.append(got)
            continue
        first = found.setdefault((got.manifest.pipeline, got.manifest.checkpoint_id), got)
        if first is not got and first.opened.directory != got.opened.directory:
            reason = f"the same snapshot as {first.opened.directory}"
            if first.manifest.attempt != got.manifest.attempt:
                reason = f"it says that it is the snapshot that lies in {first.opened.directory}, and is another one"
            left_out.append(LeftOut(got.opened.directory, reason, damaged=False))
    return OnStorage(tuple(found.values()), tuple(left_out), highest, savepoints)


def _metadata_in(deployment: Deployment, directory: str) -> Iterator[str]:
    """A directory of savepoints, or one savepoint's own."""
    place = PLACES.kind(directory).normalised(directory)
    for file in deployment.remover().list_files(place):
        if file.path == METADATA_NAME or (file.path.endswith(f"/{METADATA_NAME}") and file.path.count("/") == 1):
            yield f"{place}/{file.path}"


def _opened(deployment: Deployment, directory: str, root: str) -> FoundSnapshot | LeftOut:
    try:
        opened = open_checkpoint(directory, storage_root=deployment.storage_root)
    except (CorruptStateError, UnsupportedError, NotFoundError) as error:
        return LeftOut(directory, error.message, damaged=True)
    manifest = opened.manifest
    if manifest is None:
        return LeftOut(directory, "written by Flink, not by a pipeline of statelib", damaged=False)
    own = f"{root}/{manifest.pipeline}/{checkpoint_directory(manifest.checkpoint_id)}"
    if manifest.kind is SnapshotKind.CHECKPOINT and opened.directory != own:
        reason = f"a copy of checkpoint {manifest.pipeline}/{manifest.checkpoint_id}, which was written to {own}"
        return LeftOut(opened.directory, reason, damaged=False)
    return FoundSnapshot(opened, manifest)
