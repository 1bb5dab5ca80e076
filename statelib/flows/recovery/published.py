"""Find the snapshots on storage without the catalog."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from statelib.errors import CorruptStateError, NotFoundError, UnsupportedError
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest, SnapshotKind
from statelib.model.ids import SAVEPOINTS_DIRECTORY, CheckpointId, PipelineName, is_pipeline_name
from statelib.savepoints.opened import Checkpoint
from statelib.storage.names import (
    CHECKPOINT_PREFIX,
    METADATA_NAME,
    SAVEPOINT_PREFIX,
    checkpoint_directory,
    checkpoint_number,
)
from statelib.storage.registry import PLACES

_CHECKPOINT = re.compile(rf"([^/]+)/({CHECKPOINT_PREFIX}[0-9]+)/.+")
_SAVEPOINT = re.compile(rf"{SAVEPOINTS_DIRECTORY}/{SAVEPOINT_PREFIX}(.+)-([0-9]{{1,16}})/.+")


@dataclass(frozen=True)
class LeftOut:
    """A directory whose snapshot is not registered. ``damaged``: whether the reason is damage."""

    directory: str
    reason: str
    damaged: bool


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot on storage that a pipeline of statelib wrote."""

    opened: Checkpoint
    manifest: CheckpointManifest


@dataclass(frozen=True)
class OnStorage:
    """The snapshots on storage. ``highest``: per pipeline, the highest id in the name of a checkpoint's directory.
    ``savepoints``: per pipeline, the ids in the names of savepoints' directories."""

    snapshots: tuple[StoredSnapshot, ...]
    left_out: tuple[LeftOut, ...]
    highest: dict[PipelineName, int]
    savepoints: dict[PipelineName, set[int]]


def on_storage(deployment: Deployment, also: Sequence[str] = ()) -> OnStorage:
    """Return all snapshots below the deployment's storage and all savepoints in the directories ``also``.

    Only ``_metadata`` files are read. If two snapshots have the same id, the first is used, checkpoints before
    savepoints."""
    root = deployment.root_uri()
    paths = list(_paths(deployment, root))
    highest: dict[PipelineName, int] = {}
    savepoints: dict[PipelineName, set[int]] = {}
    for path in paths:
        if match := _CHECKPOINT.fullmatch(path):
            name = PipelineName(match[1])
            highest[name] = max(highest.get(name, 0), checkpoint_number(match[2]) or 0)
        elif match := _SAVEPOINT.fullmatch(path):
            savepoints.setdefault(PipelineName(match[1]), set()).add(int(match[2]))
    places = [f"{root}/{p}" for p in paths if _is_metadata_of_snapshot(p)]
    places.sort(key=lambda place: checkpoint_number(place.split("/")[-2]) is None)
    places += [place for directory in also for place in _metadata_in(deployment, directory)]
    snapshots: dict[tuple[PipelineName, CheckpointId], StoredSnapshot] = {}
    left_out = []
    for place in places:
        each = _opened(deployment, place.removesuffix(f"/{METADATA_NAME}"), root)
        if isinstance(each, LeftOut):
            left_out.append(each)
            continue
        first = snapshots.setdefault((each.manifest.pipeline, each.manifest.checkpoint_id), each)
        if first is not each and first.opened.directory != each.opened.directory:
            reason = f"the same snapshot as {first.opened.directory}"
            if first.manifest.attempt != each.manifest.attempt:
                reason = f"its manifest has the id of the snapshot in {first.opened.directory}, but it is another one"
            left_out.append(LeftOut(each.opened.directory, reason, damaged=False))
    return OnStorage(tuple(snapshots.values()), tuple(left_out), highest, savepoints)


def _is_metadata_of_snapshot(path: str) -> bool:
    """Return whether a path below the root is that of a ``_metadata`` in a place of snapshots: two directories deep, or
    in a directory that statelib named for a savepoint, wherever its user wanted it."""
    directory, _, name = path.rpartition("/")
    is_savepoint = directory.rpartition("/")[2].startswith(SAVEPOINT_PREFIX)
    return name == METADATA_NAME and (is_savepoint or path.count("/") == 2)


def _paths(deployment: Deployment, root: str) -> Iterator[str]:
    """Yield the paths of the files in the directories of pipelines and of savepoints. Other directories, such as the
    ``lost+found`` of a volume, may be unreadable."""
    remover = deployment.remover()
    for directory in sorted(remover.list_directories(root)):
        name = directory.rpartition("/")[2]
        if is_pipeline_name(name):
            yield from (f"{name}/{file.path}" for file in remover.list_files(directory))


def _metadata_in(deployment: Deployment, directory: str) -> Iterator[str]:
    """Yield the ``_metadata`` files of a directory of savepoints, or that of a single savepoint's directory."""
    place = PLACES.kind(directory).normalised(directory)
    for file in deployment.remover().list_files(place):
        if file.path == METADATA_NAME or (file.path.endswith(f"/{METADATA_NAME}") and file.path.count("/") == 1):
            yield f"{place}/{file.path}"


def _opened(deployment: Deployment, directory: str, root: str) -> StoredSnapshot | LeftOut:
    try:
        opened = deployment.open_at(directory)
    except (CorruptStateError, UnsupportedError, NotFoundError) as error:
        return LeftOut(directory, error.message, damaged=True)
    manifest = opened.manifest
    if manifest is None:
        return LeftOut(directory, "written by Flink, not by a pipeline of statelib", damaged=False)
    own = f"{root}/{manifest.pipeline}/{checkpoint_directory(manifest.checkpoint_id)}"
    if manifest.kind is SnapshotKind.CHECKPOINT and opened.directory != own:
        reason = f"a copy of checkpoint {manifest.pipeline}/{manifest.checkpoint_id}, which was written to {own}"
        return LeftOut(opened.directory, reason, damaged=False)
    return StoredSnapshot(opened, manifest)
