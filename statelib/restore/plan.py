"""The source of a restore: one old handle and the description of its content."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import Delta
from statelib.model.choices import Backend
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsStateHandle,
    materialized_parts,
)
from statelib.model.state import KeyedStateSchema, StateStatistics
from statelib.storage.ports.views import StateReader

NATIVE_BACKEND: Mapping[type, Backend] = {
    KeyGroupsStateHandle: Backend.HEAP,
    IncrementalRemoteKeyedStateHandle: Backend.ROCKSDB,
}
"""The one backend that can restore each native form. Every backend can restore the other forms."""


@dataclass(frozen=True)
class RestoreSource:
    """One old handle that a restore reads, with the reader and the description of its content.

    ``schema`` is the schema that the handle was written with, from the manifest or from the stream itself.

    ``statistics`` are in the state order of that schema and cover at least the handle's key groups. They are None if
    they were not recorded, because Flink wrote the snapshot. Then only the checks of the formats protect the restore.

    ``checksummed`` means that the reader compares every file of the handle with a checksum that was recorded together
    with the statistics. Otherwise every entry of a database is read before the database is used.
    ``allow_non_restored`` means that stored states that the backend does not have are dropped and logged. ``partial``
    means that the handle may lack states of the schema, because Flink registers a state when its code first uses it.
    ``deltas`` are the open deltas in its change log, the oldest first. Then ``statistics`` are None, and ``settled``
    are the statistics of the state without them."""

    handle: KeyedStateHandle
    reader: StateReader
    schema: KeyedStateSchema
    statistics: tuple[StateStatistics, ...] | None = field(repr=False)
    checksummed: bool = False
    allow_non_restored: bool = False
    partial: bool = False
    deltas: tuple[Delta, ...] = ()
    settled: tuple[StateStatistics, ...] | None = field(default=None, repr=False)

    def without_deltas(self) -> "RestoreSource":
        """Return the source of the state without its open deltas."""
        if not self.deltas:
            return self
        handle = self.handle
        assert isinstance(handle, ChangelogStateBackendHandleImpl), "only a change log has deltas"
        settled = replace(handle, log=handle.log[: -len(self.deltas)])
        return replace(self, handle=settled, statistics=self.settled, deltas=(), settled=None)

    def of_delta(self, number: int) -> "RestoreSource":
        """Return a source whose entries are the partial values of one open delta, the oldest being number 0."""
        handle = self.handle
        assert isinstance(handle, ChangelogStateBackendHandleImpl), "only a change log has deltas"
        alone = replace(handle, materialized=(), log=(handle.log[number - len(self.deltas)],))
        return replace(self, handle=alone, statistics=self.deltas[number].statistics, deltas=(), settled=None)


def check_backend(backend: str, handles: Iterable[KeyedStateHandle], where: str = "the stored state") -> None:
    """Raise InvalidRequestError (``backend-changed``) if a handle has the native form of another backend.

    As in Flink, only the canonical form can be restored by every backend."""
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
