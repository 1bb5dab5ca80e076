"""The metadata and manifest of a fork's first checkpoint, derived from its source."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from statelib.flows.wiring import now_ms
from statelib.model.checkpoint import (
    CheckpointManifest,
    CheckpointMetadata,
    Origin,
)
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
)
from statelib.model.ids import AttemptId, CheckpointId
from statelib.model.record import CheckpointRecord
from statelib.savepoints.opened import Checkpoint
from statelib.storage.registry import PLACES

T = TypeVar("T")


def origins_of(source: CheckpointManifest) -> tuple[Origin, ...]:
    """Return the origins of a fork of the source: the source itself and the source's origins."""
    return (Origin(source.pipeline, source.checkpoint_id), *source.origins)


def forked(
    source: Checkpoint, record: CheckpointRecord, attempt: AttemptId, copies: Mapping[str, str] | None
) -> tuple[CheckpointMetadata, CheckpointManifest]:
    """Return the metadata and the manifest of the fork's first checkpoint, derived from the source. ``copies``:
    URI of a file of the source -> URI of its copy; None if the fork refers to the files of the source."""
    old = source.manifest
    assert old is not None

    def uri(path: str) -> str:
        original = PLACES.file_uri(source.directory, path)
        return original if copies is None else copies[original]

    files = tuple(replace(f, path=uri(f.path)) for f in old.files)
    operator = _absolute(source.keyed_operator(), uri, record.checkpoint_id)
    manifest = replace(
        old,
        pipeline=record.pipeline,
        checkpoint_id=record.checkpoint_id,
        kind=record.kind,
        epoch=record.epoch,
        attempt=attempt,
        generation=record.generation,
        base=None,
        created_at_ms=now_ms(),
        files=files,
        side_data=_absolute(old.side_data, uri, record.checkpoint_id),
        origins=origins_of(old) if copies is None else (),
        sync_ms=0,
        async_ms=0,
        upload_ms=0,
        uploaded_bytes=0 if copies is None else sum(f.size_bytes for f in files),
        keys_changed=None,
        restored_from=(),
        restores=(),
        uid=operator.uid,
        mends=None,
    )
    return CheckpointMetadata(record.checkpoint_id, (operator,)), manifest


def _absolute(value: T, uri: Callable[[str], str], checkpoint_id: CheckpointId) -> T:
    """Return a copy of handles of any kind in which every file has an absolute URI. ``uri``: returns the URI of a
    path."""
    if isinstance(value, RelativeFileStateHandle):
        return FileStateHandle(uri(value.path), value.size_bytes)  # type: ignore[return-value]
    if isinstance(value, FileStateHandle | SegmentFileStateHandle):
        return replace(value, path=uri(value.path))
    if isinstance(value, tuple):
        return tuple(_absolute(item, uri, checkpoint_id) for item in value)  # type: ignore[return-value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    values = {f.name: _absolute(getattr(value, f.name), uri, checkpoint_id) for f in fields(value) if f.init}
    if isinstance(value, IncrementalRemoteKeyedStateHandle | ChangelogStateBackendHandleImpl):
        values["checkpoint_id"] = checkpoint_id
    return replace(value, **values)
