"""The vectorised heap stream equals the slow one, and is read back as it was written."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.canonical.reading import read_header
from statelib.formats.heap.encoder import HeapStream
from statelib.formats.heap.reading import iter_heap
from statelib.formats.keyed.header import encode_header
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, STRING, VOID, StateType
from statelib.restore.schemas.recognised import recognised
from statelib.serializers.entries.rows import StateRows
from statelib.testing.memory_storage import MemoryReader
from statelib.testing.reference import codecs as reference_codecs
from statelib.testing.reference import heap as reference_heap
from statelib.testing.reference.codecs import Plain
from statelib.testing.reference.heap import Entry
from statelib.testing.type_strategies import plain_values, state_types
from statelib.wire.ragged import from_list

Pairs = list[tuple[bytes, bytes]]
States = list[dict[int, list[Entry]]]
NAMESPACES = st.sampled_from([VOID, LONG, STRING])


@st.composite
def schemas(draw: st.DrawFn) -> KeyedStateSchema:
    states = []
    for i in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from([kind for kind in StateKind if kind is not StateKind.TIMERS]))
        user_key = draw(state_types(keyable=True)) if kind is StateKind.MAP else None
        states.append(StateDescriptor(f"s{i}", kind, draw(state_types()), user_key, draw(NAMESPACES)))
    return KeyedStateSchema(draw(state_types(keyable=True)), draw(st.sampled_from([1, 128, 129])), tuple(states))


def values_of(descriptor: StateDescriptor) -> st.SearchStrategy[Plain]:
    """Draw whole values as the heap backend stores them: no empty list and no empty map."""
    value = plain_values(descriptor.value_type)
    if descriptor.kind is StateKind.LIST:
        return st.lists(value, min_size=1, max_size=4)
    if descriptor.user_key_type is None:
        return value
    user_key = descriptor.user_key_type
    return st.lists(
        st.tuples(plain_values(user_key), st.one_of(st.none(), value)),
        min_size=1,
        max_size=4,
        unique_by=lambda entry: reference_codecs.encode(user_key, entry[0]),
    )


@st.composite
def streams(draw: st.DrawFn) -> tuple[KeyedStateSchema, KeyGroupRange, States]:
    """Draw (schema, range, for each state: entries by key group, each key and namespace once, in key order)."""
    schema = draw(schemas())
    start = draw(st.integers(0, schema.max_parallelism - 1))
    key_groups = KeyGroupRange(start, min(schema.max_parallelism - 1, start + draw(st.integers(0, 4))))
    states: States = []
    for descriptor in schema.states:
        entry = st.tuples(plain_values(schema.key_type), plain_values(descriptor.namespace_type), values_of(descriptor))
        groups = {}
        for group in sorted(draw(st.sets(st.sampled_from(list(key_groups))))):
            entries = draw(st.lists(entry, max_size=6, unique_by=lambda e: _prefix(schema, descriptor, 0, e)))  # noqa: B023
            groups[group] = sorted(entries, key=lambda e: _sort_key(schema, descriptor, e))
        states.append(groups)
    return schema, key_groups, states


def _prefix(schema: KeyedStateSchema, descriptor: StateDescriptor, group: int, entry: Entry) -> bytes:
    """Return the composite key of an entry, without a user key."""
    plain = StateDescriptor("x", StateKind.VALUE, LONG, None, descriptor.namespace_type)
    return reference_codecs.encode_key(schema, plain, group, (entry[0], entry[1], None))


def _sort_key(schema: KeyedStateSchema, descriptor: StateDescriptor, entry: Entry) -> bytes:
    """Return the sort key of an entry: entries are written in the order of their first user key."""
    return min(key for key, _ in pairs_of(schema, descriptor, 0, entry))


def pairs_of(schema: KeyedStateSchema, descriptor: StateDescriptor, group: int, entry: Entry) -> Pairs:
    """Return the backend's rows of one entry, in key order."""
    key, namespace, value = entry
    if descriptor.user_key_type is None:
        return [(_prefix(schema, descriptor, group, entry), reference_codecs.encode_value(descriptor, value))]
    assert isinstance(value, list)
    return sorted(
        (
            reference_codecs.encode_key(schema, descriptor, group, (key, namespace, item[0])),
            reference_codecs.encode_value(descriptor, item[1]),
        )
        for item in value
        if isinstance(item, tuple)
    )


def in_key_order(descriptor: StateDescriptor, entry: Entry) -> Entry:
    """Return the entry with its map sorted by serialized user key, which is the order in which statelib writes it."""
    key, namespace, value = entry
    user_key = descriptor.user_key_type
    if user_key is None:
        return entry
    assert isinstance(value, list)
    pairs = [item for item in value if isinstance(item, tuple)]
    ordered: list[Plain] = [*sorted(pairs, key=lambda item: reference_codecs.encode(user_key, item[0]))]
    return key, namespace, ordered


def rows_of(pairs: Pairs) -> StateRows:
    return StateRows(from_list([key for key, _ in pairs]), from_list([value for _, value in pairs]))


def read_all(
    handle: KeyGroupsStateHandle,
    max_parallelism: int,
    wanted: KeyGroupRange | None = None,
    batch_bytes: int = 1 << 20,
) -> dict[int, Pairs]:
    assert isinstance(handle.stream, ByteStreamStateHandle)
    data = memoryview(handle.stream.data)

    def read_range(start: int, stop: int) -> memoryview:
        return data[start:stop]

    header = read_header(read_range, handle, max_parallelism)
    entries: dict[int, Pairs] = {}
    batches = iter_heap(read_range, handle, header, wanted, batch_bytes=batch_bytes)
    for state, rows in batches:
        entries.setdefault(state, []).extend(zip(rows.keys.to_list(), rows.values.to_list(), strict=True))
    return entries


def handle_of(key_groups: KeyGroupRange, offsets: tuple[int, ...], data: bytes) -> KeyGroupsStateHandle:
    return KeyGroupsStateHandle(key_groups, offsets, ByteStreamStateHandle("x", data))


def reference_stream(
    schema: KeyedStateSchema, key_groups: KeyGroupRange, states: States, compressed: bool
) -> KeyGroupsStateHandle:
    data, offsets = encode_header(schema, compressed), []
    for group in key_groups:
        offsets.append(len(data))
        parts = [(d, state.get(group, [])) for d, state in zip(schema.states, states, strict=True)]
        data += reference_heap.encode_key_group(group, schema.key_type, parts, compressed)
    return handle_of(key_groups, tuple(offsets), data)


def pairs_by_state(schema: KeyedStateSchema, states: States, wanted: KeyGroupRange | None = None) -> dict[int, Pairs]:
    flat = {
        i: [
            pair
            for group in sorted(state)
            if wanted is None or group in wanted
            for entry in state[group]
            for pair in pairs_of(schema, descriptor, group, entry)
        ]
        for i, (descriptor, state) in enumerate(zip(schema.states, states, strict=True))
    }
    return {i: pairs for i, pairs in flat.items() if pairs}


@settings(deadline=None)
@given(streams(), st.booleans(), st.integers(1, 3000), st.data())
def test_any_stream_of_the_slow_writer_is_read(
    stream: tuple[KeyedStateSchema, KeyGroupRange, States], compressed: bool, batch_bytes: int, data: st.DataObject
) -> None:
    schema, key_groups, states = stream
    handle = reference_stream(schema, key_groups, states, compressed)
    assert recognised(MemoryReader(), handle) is handle
    read_back = read_all(handle, schema.max_parallelism, None, batch_bytes)
    assert {i: sorted(pairs) for i, pairs in read_back.items()} == {
        i: sorted(pairs) for i, pairs in pairs_by_state(schema, states).items()
    }
    wanted = KeyGroupRange(data.draw(st.integers(0, schema.max_parallelism - 1)), schema.max_parallelism - 1)
    part = read_all(handle, schema.max_parallelism, wanted, batch_bytes)
    assert {i: sorted(pairs) for i, pairs in part.items()} == {
        i: sorted(pairs) for i, pairs in pairs_by_state(schema, states, wanted).items()
    }


@settings(deadline=None)
@given(streams(), st.booleans(), st.integers(1, 3000), st.data())
def test_streams_are_the_same_as_those_of_the_slow_writer(
    stream: tuple[KeyedStateSchema, KeyGroupRange, States], compressed: bool, window_bytes: int, data: st.DataObject
) -> None:
    schema, key_groups, states = stream
    rows = pairs_by_state(schema, states)
    batches = []
    for i in range(len(schema.states)):
        pairs = rows.get(i, [])
        cuts = sorted(data.draw(st.lists(st.integers(0, len(pairs)), max_size=3)))
        batches.append([rows_of(pairs[a:b]) for a, b in zip([0, *cuts], [*cuts, len(pairs)], strict=True)])
    again = batches if data.draw(st.booleans()) else None
    encoder = HeapStream(schema, key_groups, batches, compressed, window_bytes, again=again)
    encoded = b"".join(encoder)
    ordered = [
        {group: [in_key_order(d, entry) for entry in entries] for group, entries in state.items()}
        for d, state in zip(schema.states, states, strict=True)
    ]
    expected = reference_stream(schema, key_groups, ordered, compressed)
    assert isinstance(expected.stream, ByteStreamStateHandle)
    assert encoded == expected.stream.data
    assert encoder.offsets == expected.offsets


@settings(deadline=None)
@given(streams(), st.booleans(), st.data())
def test_damaged_bytes_are_decoded_or_refused(
    stream: tuple[KeyedStateSchema, KeyGroupRange, States], compressed: bool, data: st.DataObject
) -> None:
    schema, key_groups, states = stream
    handle = reference_stream(schema, key_groups, states, compressed)
    assert isinstance(handle.stream, ByteStreamStateHandle)
    damaged = bytearray(handle.stream.data)
    first = handle.offsets[0]
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(first, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(first + 1, len(damaged)))
    try:
        read_all(handle_of(key_groups, handle.offsets, bytes(damaged[:cut])), schema.max_parallelism)
    except (CorruptStateError, UnsupportedError):  # The second error is raised for a RowKind that is not INSERT.
        return


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("key_type", [LONG, STRING])
def test_many_entries_of_mixed_lengths_are_read_back(compressed: bool, key_type: StateType) -> None:
    source = np.random.default_rng(1)
    texts = ["", "a", "é" * 70, "x" * 200, "日本語"]
    schema = KeyedStateSchema(key_type, 128, (StateDescriptor("s", StateKind.VALUE, STRING),))
    entries: list[Entry] = [
        (str(i) if key_type == STRING else i, None, texts[int(source.integers(len(texts)))]) for i in range(3000)
    ]
    states: States = [{7: entries}]
    handle = reference_stream(schema, KeyGroupRange(6, 8), states, compressed)
    assert read_all(handle, 128) == pairs_by_state(schema, states)


def test_an_empty_list_is_not_read_as_an_entry() -> None:
    schema = KeyedStateSchema(LONG, 128, (StateDescriptor("s", StateKind.LIST, LONG),))
    states: States = [{3: [(1, None, [5]), (2, None, []), (3, None, [6, 7])]}]
    handle = reference_stream(schema, KeyGroupRange(3, 3), states, False)
    ((_, pairs),) = read_all(handle, 128).items()
    assert [value for _, value in pairs] == [struct.pack(">q", 5), struct.pack(">qcq", 6, b",", 7)]
    assert [key[1:9] for key, _ in pairs] == [struct.pack(">q", 1), struct.pack(">q", 3)]
