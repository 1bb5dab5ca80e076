"""The rewriting of a savepoint: a new savepoint with some operators or states changed and all else copied byte by byte.

Source: docs/spec/formats.md#writing-a-savepoint. The original is not changed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from statelib.errors import InvalidRequestError, NotFoundError, UnsupportedError
from statelib.formats.canonical.chunks import Chunk
from statelib.formats.canonical.reading import iter_canonical, read_header
from statelib.formats.keyed.header import KeyedHeader
from statelib.formats.keyed.header_parts import HeaderParts, encode_header_with, header_parts
from statelib.formats.manifest.trailer import OWN_STATE_PREFIX
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.checkpoint import OperatorState, OperatorSubtaskState
from statelib.model.handles import (
    ByteStreamStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    StreamStateHandle,
)
from statelib.model.key_groups import KeyGroupRange, all_key_groups, prefix_width, subtask_range
from statelib.model.key_hash import FieldsHash
from statelib.model.savepoint import KeyedOperator
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.restore.stored.proof import ProvenStream, prove
from statelib.savepoints.opened import Checkpoint, located
from statelib.savepoints.writing.new_savepoint import NewSavepoint, SavepointWriter, cut_rows
from statelib.serializers.entries.encoding import encode_entries
from statelib.serializers.entries.rows import NO_ROWS, StateRows, join_rows
from statelib.snapshots.writers.keyed import chunk_of, write_subtask
from statelib.storage.ports.views import StateReader

T = TypeVar("T")

WINDOW_BYTES = 32 * 1024 * 1024
"""The stored bytes of a stream that are read at a time; a single key group may be larger."""
_OPERATOR_ID = re.compile("[0-9a-f]{32}")
_MASTER_STATES_AT = 16
"""The offset in ``_metadata`` of the number of master states."""


@dataclass(frozen=True)
class OperatorChange:
    """The changes to one operator's keyed state. ``drop``: the names of states to remove. ``put``: states, existing or
    new, whose entries are replaced by those of a table with the columns that ``export`` writes; an existing state keeps
    its serializer if its type is unchanged. ``key_hash``: the hash of keys that are of a user's class; without it,
    tables with such keys need the column ``key_group``."""

    drop: frozenset[str] = frozenset()
    put: Mapping[StateDescriptor, pa.Table] = field(default_factory=dict)
    key_hash: FieldsHash | None = None


def rewrite(
    source: Checkpoint,
    place: NewSavepoint,
    *,
    drop_operators: Sequence[str] = (),
    changes: Mapping[str, OperatorChange] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> str:
    """Write a changed copy of the savepoint ``source`` to ``place``, and return the URI of its directory.

    Operators are named by uid or hex id. ``drop_operators``: the operators to leave out. ``changes``: the changes to
    keyed state, by operator. ``renamed``: the new uids, by operator.

    Raises NotFoundError (``no-operator``), InvalidRequestError (``unknown-state``, ``not-canonical``,
    ``master-state``, ``side-data``, ``bad-change``, ``duplicate-operator``), ConflictError (``location-taken``), and
    the errors of reading state. After an error, everything that was written is removed."""
    dropped = {_operator(source, name).operator_id for name in drop_operators}
    changed, uids = _by_id(source, changes or {}), _by_id(source, renamed or {})
    if dropped & {*changed, *uids}:
        raise InvalidRequestError("an operator is to be dropped and to be changed", kind="bad-change")
    _check_uids(uids)
    _check_master_states(source)
    _check_side_data(source)
    with located(source.directory), SavepointWriter(place, source.metadata) as writer:
        copied: Copied = {}
        for operator in source.operators:
            if operator.operator_id in dropped:
                continue
            part = _Part.of(source, operator)
            if operator.operator_id in changed:
                written = _changed(part, changed[operator.operator_id], writer, copied)
            else:
                written = _copied_operator(part.reader, part.operator, writer, copied)
            uid = uids.get(operator.operator_id)
            new = written if uid is None else replace(written, operator_id=operator_id(uid), uid=uid)
            writer.put(new, part.unregistered)
        return writer.publish()


def _by_id(source: Checkpoint, by_name: Mapping[str, T]) -> dict[bytes, T]:
    """Return the values by operator id. Raise InvalidRequestError (``bad-change``) if two names are of one operator."""
    by_id: dict[bytes, T] = {}
    for name, value in by_name.items():
        if by_id.setdefault(_operator(source, name).operator_id, value) is not value:
            raise InvalidRequestError(
                f"operator {name} is named twice, by its uid and by its id: expected one of them", kind="bad-change"
            )
    return by_id


def _check_uids(uids: Mapping[bytes, str]) -> None:
    if not all(uids.values()):
        raise InvalidRequestError("an operator's new uid is empty", kind="bad-change")
    for uid in filter(_OPERATOR_ID.fullmatch, uids.values()):
        raise InvalidRequestError(
            f"the new uid of an operator: expected a uid, as in uid('…') of the job, found the id {uid}",
            kind="bad-change",
        )


@dataclass(frozen=True)
class _Part:
    """An operator of the original savepoint. The types of its keyed handles are determined from the bytes of their
    streams."""

    source: Checkpoint
    operator: OperatorState

    @classmethod
    def of(cls, source: Checkpoint, operator: OperatorState) -> "_Part":
        selected = replace(source, selected=operator.operator_id)
        handles = selected.keyed_handles if any(state.keyed for _, state in operator.subtasks) else {}
        subtasks = tuple((i, replace(state, keyed=handles.get(i))) for i, state in operator.subtasks)
        return cls(selected, replace(operator, subtasks=subtasks))

    @property
    def reader(self) -> StateReader:
        return self.source.reader()

    @property
    def unregistered(self) -> set[int]:
        """The subtasks that are not finished and have no keyed state. The metadata need not name them."""
        others = {index for index, state in self.operator.subtasks if state.keyed is not None or state.finished}
        return set(range(self.operator.parallelism)) - others

    @property
    def name(self) -> str:
        return self.source.operator_name(self.operator)


def _operator(source: Checkpoint, name: str) -> OperatorState:
    """Return the operator whose uid or hex id is ``name``. Raises NotFoundError (``no-operator``)."""
    for operator in source.operators:
        if name in (source.operator_name(operator), operator.operator_id.hex()) or operator.operator_id == operator_id(
            name
        ):
            return operator
    names = ", ".join(map(source.operator_name, source.operators)) or "none"
    raise NotFoundError(f"{source.directory}: no operator {name!r}: there are {names}", kind="no-operator")


def _check_master_states(source: Checkpoint) -> None:
    """Raise InvalidRequestError (``master-state``) if the savepoint contains state of master hooks. Such state is not
    read, so it would be missing from the copy."""
    count = int.from_bytes(source.metadata_bytes[_MASTER_STATES_AT : _MASTER_STATES_AT + 4], "big")
    if count:
        raise InvalidRequestError(
            f"{source.directory}: it holds the state of {count} master hooks, which would be lost", kind="master-state"
        )


def _check_side_data(source: Checkpoint) -> None:
    """Raise InvalidRequestError (``side-data``) if the savepoint contains side data of user code. It has no place in
    Flink's format, so it would be missing from the copy."""
    stored = source.manifest.side_data if source.manifest else ()
    names = dict.fromkeys(part.name for part in stored if not part.name.startswith(OWN_STATE_PREFIX))
    if names:
        raise InvalidRequestError(
            f"{source.directory}: it holds the side data {', '.join(map(repr, names))}, which would be lost",
            kind="side-data",
            hint="rewrite a savepoint of the pipeline without 'side_data' and with 'allow_non_restored_state: true'",
        )


Copied = dict[StreamStateHandle, StreamStateHandle]
"""The copy of each stream that is copied so far, by the original."""


def _copied_operator(
    reader: StateReader, operator: OperatorState, writer: SavepointWriter, copied: Copied
) -> OperatorState:
    """Copy the files of an operator and return it with handles to the copies. A stream in ``copied`` is not copied
    again.

    Raises InvalidRequestError (``not-canonical``)."""

    def copy(stream: StreamStateHandle) -> StreamStateHandle:
        if isinstance(stream, ByteStreamStateHandle):
            return stream
        if stream not in copied:
            copied[stream] = writer.copies.write_pieces(ProvenStream(reader, stream).blocks()).handle
        return copied[stream]

    subtasks = tuple(
        (
            index,
            replace(
                state,
                keyed=_with_copies(state.keyed, copy),
                operator=_operator_with_copies(state.operator, copy),
                raw_keyed=_with_copies(state.raw_keyed, copy),
                raw_operator=_operator_with_copies(state.raw_operator, copy),
            ),
        )
        for index, state in operator.subtasks
    )
    coordinator = None if operator.coordinator is None else copy(operator.coordinator)
    return replace(operator, subtasks=subtasks, coordinator=coordinator)


Copy = Callable[[StreamStateHandle], StreamStateHandle]


def _with_copies(handle: KeyedStateHandle | None, copy: Copy) -> KeyedStateHandle | None:
    """Return the handle with its stream copied. Raises InvalidRequestError (``not-canonical``) for a native handle."""
    if handle is None:
        return None
    if isinstance(handle, KeyGroupsSavepointStateHandle | KeyGroupsStateHandle):
        return replace(handle, stream=copy(handle.stream))
    raise InvalidRequestError(
        f"state in a {type(handle).__name__} is tied to its backend",
        kind="not-canonical",
        hint="take a canonical savepoint of the job",
    )


def _operator_with_copies(handle: OperatorStreamStateHandle | None, copy: Copy) -> OperatorStreamStateHandle | None:
    return None if handle is None else replace(handle, stream=copy(handle.stream))


def _changed(part: _Part, change: OperatorChange, writer: SavepointWriter, copied: Copied) -> OperatorState:
    """Write an operator with its keyed state changed, and return it. All its other state is copied.

    Raises InvalidRequestError (``bad-change``, ``not-canonical``, ``unknown-state``), UnsupportedError
    (``raw-keyed-state``)."""
    reader, operator = part.reader, part.operator
    handles = {i: _canonical(state.keyed) for i, state in operator.subtasks if state.keyed is not None}
    present = part.source.managed_schema
    if present is None or not handles:
        raise InvalidRequestError(f"operator {part.name} has no keyed state", kind="bad-change")
    schema = _new_schema(present, change)
    raw = {timers.descriptor.name for timers in part.source.raw_timers} if change.put else set()
    for name in raw & {descriptor.name for descriptor in change.put}:
        raise UnsupportedError(
            f"state {name!r} of operator {part.name}: timers in raw keyed state, which cannot be replaced",
            kind="raw-keyed-state",
            hint="take a savepoint with a newer Flink: there they are state like any other",
        )
    target = KeyedOperator(part.name, schema, operator.parallelism, change.key_hash)
    put = {d.name: _encoded(schema, d, table, change.key_hash) for d, table in change.put.items()}
    unchanged = [d.name for d in schema.states if d in present.states]
    # State other than keyed state is copied as that of an unchanged operator.
    rest = replace(operator, subtasks=tuple((i, replace(state, keyed=None)) for i, state in operator.subtasks))
    subtasks = dict(_copied_operator(reader, rest, writer, copied).subtasks)
    prove(reader, [handle.stream for handle in handles.values()])
    streams = {index: _Stream(reader, handle, operator.max_parallelism) for index, handle in handles.items()}
    parts = _joined_parts(streams.values())
    for index, subtask_chunks in _chunks(part, streams, schema, put):
        own = streams[index].parts if index in streams else parts
        header = encode_header_with(
            HeaderParts(own.key, {**parts.states, **own.states}), schema, writer.compressed, unchanged
        )
        written, _ = write_subtask(
            writer.uploads, target, index, subtask_chunks, compressed=writer.compressed, header=header
        )
        subtasks[index] = replace(subtasks.get(index, OperatorSubtaskState()), keyed=written)
    coordinator = _copied_operator(reader, replace(operator, subtasks=()), writer, copied).coordinator
    return replace(operator, subtasks=tuple(sorted(subtasks.items())), coordinator=coordinator)


def _joined_parts(streams: Iterable["_Stream"]) -> HeaderParts:
    """Return the joined parts of the headers of all subtasks. One header is not enough, because it contains only the
    states that the code of its subtask had registered."""
    keys, states = [stream.parts.key for stream in streams], [stream.parts.states for stream in streams]
    return HeaderParts(keys[0], {name: part for by_name in reversed(states) for name, part in by_name.items()})


def _chunks(
    part: _Part, streams: Mapping[int, "_Stream"], schema: KeyedStateSchema, put: Mapping[str, StateRows]
) -> Iterator[tuple[int, Iterator[Chunk]]]:
    """Yield (index of the subtask, its chunks of entries). A subtask without keyed state is included if new entries lie
    in its key groups."""
    operator = part.operator
    for index, stream in streams.items():
        yield index, stream.chunks(schema, put)
    width = prefix_width(operator.max_parallelism)
    for index in sorted(part.unregistered):
        owned = subtask_range(index, operator.parallelism, operator.max_parallelism)
        rows = [cut_rows(put.get(d.name, NO_ROWS), owned, width) for d in schema.states]
        if any(map(len, rows)):
            yield index, iter([Chunk(owned, rows)])


def _canonical(handle: object) -> KeyGroupsSavepointStateHandle:
    """Return the handle if it is canonical. Raises InvalidRequestError (``not-canonical``) for any other handle."""
    if isinstance(handle, KeyGroupsSavepointStateHandle):
        return handle
    raise InvalidRequestError(
        f"state in a {type(handle).__name__} cannot be changed",
        kind="not-canonical",
        hint="take a canonical savepoint of the job",
    )


def _new_schema(present: KeyedStateSchema, change: OperatorChange) -> KeyedStateSchema:
    """Return the schema after the change: the existing states that are not dropped, in their order, then the new ones.

    Raises InvalidRequestError (``unknown-state``, ``bad-change``)."""
    for name in change.drop:
        present.state(name)
    put = {d.name: d for d in change.put}
    if change.drop & set(put):
        raise InvalidRequestError("a state is to be dropped and to get new entries", kind="bad-change")
    remaining = [put.get(d.name, d) for d in present.states if d.name not in change.drop]
    new = [d for name, d in put.items() if name not in {d.name for d in present.states}]
    return replace(present, states=(*remaining, *new))


def _encoded(
    schema: KeyedStateSchema, descriptor: StateDescriptor, table: pa.Table, key_hash: FieldsHash | None
) -> StateRows:
    """Return the serialized entries of a table, sorted by key."""
    rows = encode_entries(schema, descriptor, table, key_hash)
    return chunk_of(all_key_groups(schema.max_parallelism), [rows]).states[0]


class _Stream:
    """The canonical stream of one subtask, which is read in windows of key groups."""

    def __init__(self, reader: StateReader, handle: KeyGroupsSavepointStateHandle, max_parallelism: int) -> None:
        self._reader, self._handle = reader, handle
        self.header: KeyedHeader = read_header(self._read, handle, max_parallelism)
        self.parts: HeaderParts = header_parts(self._read(0, self.header.size_bytes))
        self._width = prefix_width(max_parallelism)

    def _read(self, start: int, stop: int) -> memoryview:
        return self._reader.read_range(self._handle.stream, start, stop)

    def chunks(self, schema: KeyedStateSchema, put: Mapping[str, StateRows]) -> Iterator[Chunk]:
        """Yield all entries, one chunk per window. The states in ``put`` have the new entries; the other states of
        ``schema`` have their existing entries in their existing order."""
        names = [d.name for d in self.header.schema.states]
        for window in self._windows():
            existing: dict[str, list[StateRows]] = {}
            for index, rows in iter_canonical(self._read, self._handle, self.header, window):
                existing.setdefault(names[index], []).append(rows)
            new = {name: cut_rows(rows, window, self._width) for name, rows in put.items()}
            yield Chunk(window, [new.get(d.name, join_rows(existing.get(d.name, []))) for d in schema.states])

    def _windows(self) -> Iterator[KeyGroupRange]:
        """Yield ranges of consecutive key groups with about ``WINDOW_BYTES`` stored bytes each."""
        start, begin = self._handle.key_group_range.start, 0
        for i, offset in enumerate(self._handle.offsets):
            if offset and begin and offset - begin > WINDOW_BYTES:
                yield KeyGroupRange(start, self._handle.key_group_range.start + i - 1)
                start, begin = self._handle.key_group_range.start + i, offset
            begin = begin or offset
        yield KeyGroupRange(start, self._handle.key_group_range.end)
