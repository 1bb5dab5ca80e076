"""A savepoint with one thing changed: what is not touched goes over byte for byte.

Source: flink-formats.md section 11. The original stays as it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from statelib.errors import InvalidRequestError, NotFoundError
from statelib.flows.new_savepoint import NewSavepoint, SavepointWriter, cut_rows
from statelib.flows.opened import Checkpoint, located
from statelib.formats.canonical import iter_canonical, read_header
from statelib.formats.canonical_chunks import Chunk
from statelib.formats.header_parts import HeaderParts, encode_header_with, header_parts
from statelib.formats.keyed_header import KeyedHeader
from statelib.formats.operator_id import operator_id
from statelib.model.checkpoint import OperatorState
from statelib.model.handles import (
    ByteStreamStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    StreamStateHandle,
)
from statelib.model.key_groups import KeyGroupRange, all_key_groups, prefix_width
from statelib.model.key_hash import FieldsHash
from statelib.model.savepoint import KeyedOperator
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.restore.proof import ProvenStream, prove
from statelib.serializers.entry_columns import encode_entries
from statelib.serializers.rows import StateRows, join_rows
from statelib.snapshots.keyed_writer import chunk_of, write_subtask
from statelib.storage.views import StateReader

WINDOW_BYTES = 32 * 1024 * 1024
_MASTER_STATES_AT = 16


@dataclass(frozen=True)
class OperatorChange:
    """What becomes of one operator's keyed state. ``put``: states that get new entries, present ones or new ones, with
    the columns that ``export`` writes (a present one keeps its serializer if its type stays). ``key_hash``: for keys
    of a user's class; without it the columns must hold ``key_group``."""

    drop: frozenset[str] = frozenset()
    put: Mapping[StateDescriptor, pa.Table] = field(default_factory=dict)
    key_hash: FieldsHash | None = None


def rewrite(
    source: Checkpoint,
    place: NewSavepoint,
    *,
    drop_operators: Sequence[str] = (),
    changes: Mapping[str, OperatorChange] | None = None,
) -> str:
    """Write ``source``, without some operators and with others changed (by uid or hex id), to a new place; its URI.

    Raises NotFoundError (``no-operator``), InvalidRequestError (``unknown-state``, ``not-canonical``,
    ``master-state``, ``bad-change``), and what writing raises."""
    named = changes or {}
    dropped = {_operator(source, name).operator_id for name in drop_operators}
    changed = {_operator(source, name).operator_id: change for name, change in named.items()}
    if dropped & set(changed):
        raise InvalidRequestError("an operator is to be dropped and to be changed", kind="bad-change")
    _check_master_states(source)
    with located(source.directory), SavepointWriter(place) as writer:
        copied: dict[StreamStateHandle, StreamStateHandle] = {}
        for operator in source.operators:
            if operator.operator_id in changed:
                writer.put(_changed(source, operator, changed[operator.operator_id], writer, copied))
            elif operator.operator_id not in dropped:
                writer.put(_carried(source.reader(), operator, writer, copied))
        return writer.publish()


def _operator(source: Checkpoint, name: str) -> OperatorState:
    for operator in source.operators:
        if name in (source.operator_name(operator), operator.operator_id.hex()) or operator.operator_id == operator_id(
            name
        ):
            return operator
    known = ", ".join(map(source.operator_name, source.operators)) or "none"
    raise NotFoundError(f"{source.directory}: no operator {name!r}: there are {known}", kind="no-operator")


def _check_master_states(source: Checkpoint) -> None:
    """State of a job's master hooks is not read, hence it could only be lost."""
    count = int.from_bytes(source.metadata_bytes[_MASTER_STATES_AT : _MASTER_STATES_AT + 4], "big")
    if count:
        raise InvalidRequestError(
            f"{source.directory}: it holds the state of {count} master hooks, which would be lost", kind="master-state"
        )


Copied = dict[StreamStateHandle, StreamStateHandle]


def _carried(reader: StateReader, operator: OperatorState, writer: SavepointWriter, copied: Copied) -> OperatorState:
    """The same operator, its files copied."""

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
                keyed=_moved(state.keyed, copy),
                operator=_moved_operator(state.operator, copy),
                raw_keyed=_moved(state.raw_keyed, copy),
                raw_operator=_moved_operator(state.raw_operator, copy),
            ),
        )
        for index, state in operator.subtasks
    )
    coordinator = None if operator.coordinator is None else copy(operator.coordinator)
    return replace(operator, subtasks=subtasks, coordinator=coordinator)


Copy = Callable[[StreamStateHandle], StreamStateHandle]


def _moved(handle: KeyedStateHandle | None, copy: Copy) -> KeyedStateHandle | None:
    if handle is None:
        return None
    if isinstance(handle, KeyGroupsSavepointStateHandle | KeyGroupsStateHandle):
        return replace(handle, stream=copy(handle.stream))
    raise InvalidRequestError(
        f"state in a {type(handle).__name__} is tied to its backend",
        kind="not-canonical",
        hint="take a canonical savepoint of the job",
    )


def _moved_operator(handle: OperatorStreamStateHandle | None, copy: Copy) -> OperatorStreamStateHandle | None:
    return None if handle is None else replace(handle, stream=copy(handle.stream))


def _changed(
    source: Checkpoint, operator: OperatorState, change: OperatorChange, writer: SavepointWriter, copied: Copied
) -> OperatorState:
    reader = source.reader()
    handles = {i: state.keyed for i, state in operator.subtasks if state.keyed is not None}
    first = next(iter(handles.values()), None)
    if first is None:
        raise InvalidRequestError(f"operator {source.operator_name(operator)} has no keyed state", kind="bad-change")
    present = _Stream(reader, _canonical(first), operator.max_parallelism)
    schema = _new_schema(present.header.schema, change)
    target = KeyedOperator(source.operator_name(operator), schema, operator.parallelism, change.key_hash)
    put = {d.name: _encoded(schema, d, table, change.key_hash) for d, table in change.put.items()}
    kept = [d.name for d in schema.states if d in present.header.schema.states]
    # What is not the changed state of a subtask is carried as that of any other operator.
    rest = replace(operator, subtasks=tuple((i, replace(state, keyed=None)) for i, state in operator.subtasks))
    subtasks = dict(_carried(reader, rest, writer, copied).subtasks)
    prove(reader, [_canonical(handle).stream for handle in handles.values()])
    for index, handle in handles.items():
        stream = _Stream(reader, _canonical(handle), operator.max_parallelism)
        chunks = stream.chunks(schema, put)
        header = encode_header_with(stream.parts, schema, writer.compressed, kept)
        written, _ = write_subtask(writer.uploads, target, index, chunks, compressed=writer.compressed, header=header)
        subtasks[index] = replace(subtasks[index], keyed=written)
    coordinator = _carried(reader, replace(operator, subtasks=()), writer, copied).coordinator
    return replace(operator, subtasks=tuple(subtasks.items()), coordinator=coordinator)


def _canonical(handle: object) -> KeyGroupsSavepointStateHandle:
    if isinstance(handle, KeyGroupsSavepointStateHandle):
        return handle
    raise InvalidRequestError(
        f"state in a {type(handle).__name__} cannot be changed",
        kind="not-canonical",
        hint="take a canonical savepoint of the job",
    )


def _new_schema(present: KeyedStateSchema, change: OperatorChange) -> KeyedStateSchema:
    """The states that stay, in their order, those with new entries in place; new ones last."""
    for name in change.drop:
        present.state(name)
    put = {d.name: d for d in change.put}
    if change.drop & set(put):
        raise InvalidRequestError("a state is to be dropped and to get new entries", kind="bad-change")
    stay = [put.get(d.name, d) for d in present.states if d.name not in change.drop]
    new = [d for name, d in put.items() if name not in {d.name for d in present.states}]
    return replace(present, states=(*stay, *new))


def _encoded(
    schema: KeyedStateSchema, descriptor: StateDescriptor, table: pa.Table, rule: FieldsHash | None
) -> StateRows:
    rows = encode_entries(schema, descriptor, table, rule)
    return chunk_of(all_key_groups(schema.max_parallelism), [rows]).states[0]


class _Stream:
    """One subtask's canonical stream, read some key groups at a time."""

    def __init__(self, reader: StateReader, handle: KeyGroupsSavepointStateHandle, max_parallelism: int) -> None:
        self._reader, self._handle = reader, handle
        self.header: KeyedHeader = read_header(self._read, handle, max_parallelism)
        self.parts: HeaderParts = header_parts(self._read(0, self.header.size_bytes))
        self._width = prefix_width(max_parallelism)

    def _read(self, start: int, stop: int) -> memoryview:
        return self._reader.read_range(self._handle.stream, start, stop)

    def chunks(self, schema: KeyedStateSchema, put: Mapping[str, StateRows]) -> Iterator[Chunk]:
        """All entries of ``schema``: those ``put`` in place of the present ones, which keep their order."""
        names = [d.name for d in self.header.schema.states]
        for window in self._windows():
            found: dict[str, list[StateRows]] = {}
            for index, rows in iter_canonical(self._read, self._handle, self.header, window):
                found.setdefault(names[index], []).append(rows)
            new = {name: cut_rows(rows, window, self._width) for name, rows in put.items()}
            yield Chunk(window, [new.get(d.name, join_rows(found.get(d.name, []))) for d in schema.states])

    def _windows(self) -> Iterator[KeyGroupRange]:
        """Neighbouring key groups whose bytes are about a window."""
        start, begin = self._handle.key_group_range.start, 0
        for i, offset in enumerate(self._handle.offsets):
            if offset and begin and offset - begin > WINDOW_BYTES:
                yield KeyGroupRange(start, self._handle.key_group_range.start + i - 1)
                start, begin = self._handle.key_group_range.start + i, offset
            begin = begin or offset
        yield KeyGroupRange(start, self._handle.key_group_range.end)
