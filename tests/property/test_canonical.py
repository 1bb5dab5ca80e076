"""The vectorised canonical codec equals the slow one, and reads back what it has written."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.errors import CorruptStateError
from statelib.formats.canonical.encoder import CanonicalStream, encode_canonical, encode_key_group
from statelib.formats.canonical.reading import decode_key_group, iter_canonical, read_header
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsSavepointStateHandle, KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange, prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG
from statelib.restore.schemas.recognised import recognised
from statelib.serializers.entries.rows import StateRows
from statelib.testing.memory_storage import MemoryReader
from statelib.testing.reference import canonical as reference_canonical
from statelib.wire.ragged import from_list
from tests.support.extent import examples

Entries = list[tuple[bytes, bytes]]

PLAIN = st.lists(
    st.tuples(st.binary(min_size=0, max_size=6), st.binary(max_size=6)), max_size=8, unique_by=lambda entry: entry[0]
)
RUNS = st.lists(st.tuples(st.integers(1, 400), st.sampled_from([2, 3, 9]), st.sampled_from([0, 1, 8])), max_size=5)
"""(entries, key width, value width): runs of equal lengths, as long as the decoder's windows and longer."""


@st.composite
def group_entries(draw: st.DrawFn) -> Entries:
    """Draw entries of one state without their prefix: a few different ones, or runs of equal length."""
    if draw(st.booleans()):
        return draw(PLAIN)
    source = random.Random(draw(st.integers(0, 1000)))
    entries = {}
    for count, key_width, value_width in draw(RUNS):
        for _ in range(count):
            entries[source.randbytes(key_width)] = source.randbytes(value_width)
    return list(entries.items())


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, KeyGroupRange, list[dict[int, Entries]]]:
    """Draw (max parallelism, range, for each state: sorted entries by key group)."""
    max_parallelism = draw(st.sampled_from([1, 128, 129, 32768]))
    start = draw(st.integers(0, max_parallelism - 1))
    key_groups = KeyGroupRange(start, min(max_parallelism - 1, start + draw(st.integers(0, 5))))
    width = prefix_width(max_parallelism)
    states = []
    for _ in range(draw(st.integers(1, 3))):
        chosen = draw(st.sets(st.sampled_from(list(key_groups))))
        groups = {g: draw(group_entries()) for g in sorted(chosen)}
        states.append({g: sorted((g.to_bytes(width, "big") + k, v) for k, v in e) for g, e in groups.items()})
    return max_parallelism, key_groups, states


def rows_of(entries: Entries) -> StateRows:
    return StateRows(from_list([key for key, _ in entries]), from_list([value for _, value in entries]))


def entries_of(rows: StateRows) -> Entries:
    return list(zip(rows.keys.to_list(), rows.values.to_list(), strict=True))


def schema_of(max_parallelism: int, states: int) -> KeyedStateSchema:
    descriptors = tuple(StateDescriptor(f"s{i}", StateKind.VALUE, LONG) for i in range(states))
    return KeyedStateSchema(LONG, max_parallelism, descriptors)


def handle_of(key_groups: KeyGroupRange, offsets: tuple[int, ...], data: bytes) -> KeyGroupsSavepointStateHandle:
    return KeyGroupsSavepointStateHandle(key_groups, offsets, ByteStreamStateHandle("x", data))


def read_all(
    handle: KeyGroupsSavepointStateHandle, max_parallelism: int, wanted: KeyGroupRange | None, batch_bytes: int
) -> dict[int, Entries]:
    def read_range(start: int, stop: int) -> memoryview:
        return memoryview(handle.stream.data)[start:stop]

    header = read_header(read_range, handle, max_parallelism)
    entries: dict[int, Entries] = {}
    for state, rows in iter_canonical(read_range, handle, header, wanted, batch_bytes=batch_bytes):
        entries.setdefault(state, []).extend(entries_of(rows))
    return entries


@given(st.lists(group_entries(), min_size=1, max_size=4), st.booleans(), st.integers(0, 127))
def test_key_group_equals_the_reference(states: list[Entries], compressed: bool, key_group: int) -> None:
    prefixed = {i: sorted((bytes([key_group]) + k, v) for k, v in entries) for i, entries in enumerate(states)}
    expected = reference_canonical.encode_key_group(prefixed, compressed)
    assert encode_key_group([(i, rows_of(entries)) for i, entries in prefixed.items()], compressed) == expected
    if expected:
        rows, consumed = decode_key_group(expected, compressed)
        assert consumed == len(expected)
        assert {i: entries_of(result) for i, result in rows.items()} == {i: e for i, e in prefixed.items() if e}
        assert reference_canonical.decode_key_group(expected, compressed) == {i: e for i, e in prefixed.items() if e}


@settings(deadline=None)
@given(streams(), st.booleans(), st.integers(1, 3000), st.integers(1, 3000), st.data())
def test_stream_equals_the_reference_and_reads_back(
    stream: tuple[int, KeyGroupRange, list[dict[int, Entries]]],
    compressed: bool,
    window_bytes: int,
    batch_bytes: int,
    data: st.DataObject,
) -> None:
    max_parallelism, key_groups, states = stream
    schema = schema_of(max_parallelism, len(states))
    flat = [[entry for group in sorted(state) for entry in state[group]] for state in states]
    cuts = [sorted(data.draw(st.lists(st.integers(0, len(entries)), max_size=3))) for entries in flat]
    batches = [
        [rows_of(entries[a:b]) for a, b in zip([0, *at], [*at, len(entries)], strict=True)]
        for entries, at in zip(flat, cuts, strict=True)
    ]
    encoder = CanonicalStream(schema, key_groups, batches, compressed, window_bytes)
    encoded = b"".join(encoder)
    handle = handle_of(key_groups, encoder.offsets, encoded)
    assert recognised(MemoryReader(), KeyGroupsStateHandle(key_groups, encoder.offsets, handle.stream)) == handle
    expected_groups = [
        reference_canonical.encode_key_group({i: s.get(g, []) for i, s in enumerate(states)}, compressed)
        for g in key_groups
    ]
    assert encoded.endswith(b"".join(expected_groups))
    position = len(encoded) - sum(map(len, expected_groups))
    for offset, group in zip(encoder.offsets, expected_groups, strict=True):
        assert offset == (position if group else 0)
        position += len(group)
    read_back = read_all(handle, max_parallelism, None, batch_bytes)
    assert read_back == {i: entries for i, entries in enumerate(flat) if entries}
    first = data.draw(st.integers(0, max_parallelism - 1))
    wanted = KeyGroupRange(first, max_parallelism - 1)
    assert read_all(handle, max_parallelism, wanted, batch_bytes) == {
        i: expected_entries
        for i, state in enumerate(states)
        if (expected_entries := [entry for g in sorted(state) if g >= first for entry in state[g]])
    }


@settings(deadline=None)
@given(streams(), st.booleans())
def test_encoding_in_batches_gives_the_same_bytes(
    stream: tuple[int, KeyGroupRange, list[dict[int, Entries]]], compressed: bool
) -> None:
    max_parallelism, key_groups, states = stream
    schema = schema_of(max_parallelism, len(states))
    flat = [[entry for group in sorted(state) for entry in state[group]] for state in states]
    at_once, offsets = encode_canonical(schema, key_groups, [rows_of(entries) for entries in flat], compressed)
    one_by_one = CanonicalStream(schema, key_groups, [[rows_of([e]) for e in entries] for entries in flat], compressed)
    assert b"".join(at_once) == b"".join(one_by_one)
    assert offsets == one_by_one.offsets


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_decoded_or_refused(data: bytes, compressed: bool) -> None:
    try:
        rows, consumed = decode_key_group(data, compressed)
    except CorruptStateError:
        return
    assert 0 < consumed <= len(data)
    assert all(len(each) for each in rows.values())


@pytest.mark.parametrize("compressed", [False, True])
def test_long_runs_of_entries_of_mixed_lengths_are_read_back(compressed: bool) -> None:
    """The runs are longer than every window of the decoder, with single entries of other lengths in between."""
    source = np.random.default_rng(1)
    widths = np.full(60_000, 8)
    widths[[70, 5_000, 5_001, 59_998]] = 9
    entries = [(bytes([5]) + i.to_bytes(4, "big"), source.bytes(int(width))) for i, width in enumerate(widths)]
    data = encode_key_group([(3, rows_of(entries))], compressed)
    assert data == reference_canonical.encode_key_group({3: entries}, compressed)
    rows, consumed = decode_key_group(data, compressed)
    assert consumed == len(data)
    assert entries_of(rows[3]) == entries


@pytest.mark.parametrize("key_width", [4, 260])
@given(st.lists(st.lists(st.sampled_from([0, 1, 5, 6]), max_size=40), min_size=1, max_size=30), st.integers(1, 400))
@settings(max_examples=examples(50), deadline=None)
def test_entries_inside_of_values_are_not_taken_for_entries(
    key_width: int, values: list[list[int]], copies: int
) -> None:
    """The values contain the two bytes at which the decoder looks for entries, and whole entries."""
    inner = key_width.to_bytes(4, "big") + bytes([5]) * key_width + bytes(4)
    contents = [bytes(value) + inner * (len(value) % 3) + inner[: len(value) % 7] for value in values]
    pairs = [(n, contents[n % len(contents)]) for n in range(copies)]
    entries = [(bytes([5]) + n.to_bytes(key_width - 1, "big"), content) for n, content in pairs]
    data = encode_key_group([(3, rows_of(entries))], False)
    rows, consumed = decode_key_group(data, False)
    assert consumed == len(data)
    assert entries_of(rows[3]) == entries
