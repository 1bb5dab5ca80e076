"""What a restore reads: one old handle, and what its content must be."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from statelib.errors import UnsupportedError
from statelib.model.handles import KeyedStateHandle, KeyGroupsStateHandle, materialized_parts
from statelib.model.state import KeyedStateSchema, StateStatistics
from statelib.storage.views import StateReader


@dataclass(frozen=True)
class RestoreSource:
    """``schema`` is the one the handle was written with (the manifest's, or the stream's own).

    ``statistics`` are in that schema's state order and cover at least the handle's key groups;
    None where nothing recorded them (a snapshot written by Flink): then only the formats' own
    checks guard the restore.

    ``checksummed``: the reader compares every file of the handle with a checksum that was recorded
    together with the statistics; otherwise a database is read as a whole before it is trusted.
    ``allow_non_restored``: states that the backend does not know are left out, and logged."""

    handle: KeyedStateHandle
    reader: StateReader
    schema: KeyedStateSchema
    statistics: tuple[StateStatistics, ...] | None = field(repr=False)
    checksummed: bool = False
    allow_non_restored: bool = False


def refuse_heap_native(handles: Iterable[KeyedStateHandle]) -> None:
    """For a RocksDB backend: as in Flink, a native snapshot belongs to its backend, only the canonical
    form is neutral. Raises UnsupportedError (``heap-native``)."""
    if any(isinstance(part, KeyGroupsStateHandle) for handle in handles for part in materialized_parts(handle)):
        raise UnsupportedError(
            "backend rocksdb: expected RocksDB's own files or a canonical savepoint, found a KeyGroupsStateHandle,"
            " the native form of the heap backend",
            kind="heap-native",
            hint="take a canonical savepoint with the heap backend, and restore that",
        )
