"""The schema of an operator that Flink wrote: the union of the states in the headers of all its handles.

Flink registers a state when its code first uses it, so the headers of an operator's subtasks may differ. A stream whose
header does not name a state has no entries of it. Source: docs/spec/formats.md#header-of-a-keyed-stream, #change-log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.formats.canonical.reading import read_header
from statelib.formats.keyed.header import decode_keyed_header
from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    MaterializedStateHandle,
    materialized_parts,
)
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.model.types import StateType
from statelib.restore.changelog.change_log import log_bindings
from statelib.restore.schemas.joined_states import join_states, join_types
from statelib.restore.schemas.matching import as_stored, describe
from statelib.storage.ports.views import StateReader


@dataclass
class _Union:
    """The key type and the states in the headers so far. ``what`` is the name of the operator in messages."""

    what: str
    key_type: StateType | None = None
    states: dict[str, StateDescriptor] = field(default_factory=dict)

    def add_key(self, key_type: StateType, where: str) -> None:
        joined = join_types(self.key_type or key_type, key_type)
        if joined is None:
            raise _mixed(f"{self.what}: the key", str(self.key_type), str(key_type), where)
        self.key_type = joined

    def add(self, state: StateDescriptor, where: str) -> None:
        earlier = self.states.get(state.name, state)
        joined = join_states(earlier, state)
        if joined is None:
            raise _mixed(f"{self.what}: state {state.name!r}", describe(earlier), describe(state), where)
        self.states[state.name] = joined


def union_schema(
    reader: StateReader,
    handles: Mapping[int, KeyedStateHandle],
    max_parallelism: int,
    what: str,
    key_type: StateType | None = None,
) -> KeyedStateSchema:
    """Return the schema with the key type and all states of the handles, in the order in which they first appear.

    ``handles`` are by subtask. ``key_type`` is used for change logs over nothing materialised, which may not name it.
    Raise UnsupportedError (``mixed-serializers`` if two handles contradict each other, ``unknown-key-type``, and what
    reading a header raises), InvalidRequestError (``other-key-type``)."""
    union = _Union(what)
    for subtask, handle in handles.items():
        where = f"{what}, subtask {subtask}"
        for part in materialized_parts(handle):
            schema = header_of(reader, part, max_parallelism, where)
            union.add_key(schema.key_type, where)
            for state in schema.states:
                union.add(state, where)
        for binding in log_bindings(reader, handle) if isinstance(handle, ChangelogStateBackendHandleImpl) else ():
            if binding.key_type is not None:
                union.add_key(binding.key_type, where)
            union.add(binding.descriptor, where)
    if not any(map(materialized_parts, handles.values())):
        union.key_type = _logged_key_type(union, key_type)
    assert union.key_type is not None, "every header names the type of its keys"
    return KeyedStateSchema(union.key_type, max_parallelism, tuple(union.states.values()))


def header_of(
    reader: StateReader, handle: MaterializedStateHandle, max_parallelism: int, what: str
) -> KeyedStateSchema:
    """Return the schema in the header of one stream, or in the meta stream of one database."""
    if isinstance(handle, IncrementalRemoteKeyedStateHandle):
        return decode_keyed_header(reader.read(handle.meta), max_parallelism, what).schema
    return read_header(partial(reader.read_range, handle.stream), handle, max_parallelism, what).schema


def _logged_key_type(union: _Union, wanted: StateType | None) -> StateType:
    """Return the key type of change logs over nothing materialised, which name it only if there are timers.

    Raise InvalidRequestError (``other-key-type``), UnsupportedError (``unknown-key-type``)."""
    logged_type = union.key_type
    if logged_type is not None and wanted is not None and as_stored(logged_type) != as_stored(wanted):
        raise InvalidRequestError(
            f"keys of type {wanted} were asked for, {union.what} has keys of type {logged_type}", kind="other-key-type"
        )
    key_type = logged_type or wanted
    if key_type is None:
        raise UnsupportedError(
            f"{union.what}: a change log over nothing materialised does not say of what type the key is",
            kind="unknown-key-type",
            hint="say it: --key-type long; or take a canonical savepoint with Flink",
        )
    return key_type


def _mixed(what: str, earlier: str, current: str, where: str) -> UnsupportedError:
    """Return the error of two subtasks with different types."""
    return UnsupportedError(
        f"{what}: earlier subtasks have {earlier}, {where.rpartition(', ')[2]} has {current}",
        kind="mixed-serializers",
        hint="Flink migrates a state when its code next uses it: take a savepoint after every subtask has used it",
    )
