"""What a restore reads: one old handle, and what its content must be."""

from dataclasses import dataclass, field

from statelib.model.handles import KeyedStateHandle
from statelib.model.state import KeyedStateSchema, StateStatistics
from statelib.storage.views import StateReader


@dataclass(frozen=True)
class RestoreSource:
    """``schema`` is the one the handle was written with (the manifest's, or the stream's own).

    ``statistics`` are in that schema's state order and cover at least the handle's key groups;
    None where nothing recorded them (a snapshot written by Flink): then only the formats' own
    checks guard the restore."""

    handle: KeyedStateHandle
    reader: StateReader
    schema: KeyedStateSchema
    statistics: tuple[StateStatistics, ...] | None = field(repr=False)
