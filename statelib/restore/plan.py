"""What a restore reads: one old handle, and what its content must be."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from statelib.errors import InvalidRequestError
from statelib.model.choices import Backend
from statelib.model.handles import (
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsStateHandle,
    materialized_parts,
)
from statelib.model.state import KeyedStateSchema, StateStatistics
from statelib.storage.views import StateReader

NATIVE_BACKEND: Mapping[type, Backend] = {
    KeyGroupsStateHandle: Backend.HEAP,
    IncrementalRemoteKeyedStateHandle: Backend.ROCKSDB,
}
"""The backend that can go on from each native form; other forms are read by every backend."""


@dataclass(frozen=True)
class RestoreSource:
    """``schema`` is the one the handle was written with (the manifest's, or the stream's own).

    ``statistics`` are in that schema's state order and cover at least the handle's key groups;
    None where nothing recorded them (a snapshot written by Flink): then only the formats' own
    checks guard the restore.

    ``checksummed``: the reader compares every file of the handle with a checksum that was recorded
    together with the statistics; otherwise a database is read as a whole before it is trusted.
    ``allow_non_restored``: states that the backend does not know are left out, and logged. ``partial``: the handle may
    lack states of the schema, because Flink registers a state when its code first uses it."""

    handle: KeyedStateHandle
    reader: StateReader
    schema: KeyedStateSchema
    statistics: tuple[StateStatistics, ...] | None = field(repr=False)
    checksummed: bool = False
    allow_non_restored: bool = False
    partial: bool = False


def check_backend(backend: str, handles: Iterable[KeyedStateHandle], where: str = "the stored state") -> None:
    """Refuse the native form of another backend: as in Flink, only the canonical form belongs to no backend.

    Raises InvalidRequestError (``backend-changed``)."""
    parts = (part for handle in handles for part in materialized_parts(handle))
    native = next((part for part in parts if NATIVE_BACKEND.get(type(part), backend) != backend), None)
    if native is None:
        return
    writer = NATIVE_BACKEND[type(native)]
    raise InvalidRequestError(
        f"{where}: expected the native form of the backend {backend}, which the pipeline has, or the canonical form;"
        f" found the native form of the backend {writer} ({type(native).__name__})",
        kind="backend-changed",
        hint=f"set 'backend: {writer}' again, take a canonical savepoint, then change the backend and restore that",
    )
