"""A stream from chunks is that of the encoder of scans, and loses nothing."""

import numpy as np
import pyarrow as pa
import pytest

from statelib.backends.keys.order import byte_order
from statelib.errors import CorruptStateError
from statelib.formats.canonical.chunks import Chunk, ChunkedStream
from statelib.formats.canonical.encoder import encode_canonical
from statelib.formats.canonical.reading import iter_canonical, read_header
from statelib.formats.keyed.header import encode_header
from statelib.formats.keyed.header_parts import encode_header_with, header_parts
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsSavepointStateHandle
from statelib.model.key_groups import KeyGroupRange, all_key_groups, prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, STRING
from statelib.serializers.entries.encoding import encode_entries
from statelib.serializers.entries.rows import NO_ROWS, StateRows, key_groups_of, statistics_of

STATES = (
    StateDescriptor("v", StateKind.VALUE, LONG),
    StateDescriptor("m", StateKind.MAP, STRING, STRING),
    StateDescriptor("none", StateKind.VALUE, LONG),
)


def schema_of(max_parallelism: int) -> KeyedStateSchema:
    return KeyedStateSchema(STRING, max_parallelism, STATES)


def entries(schema: KeyedStateSchema, count: int) -> list[StateRows]:
    keys = pa.array([f"key {n}" for n in range(count)])
    values = pa.table({"key": keys, "value": pa.array(range(count))})
    users = pa.table({"key": keys, "user_key": keys, "value": keys})
    results = [encode_entries(schema, schema.states[0], values), encode_entries(schema, schema.states[1], users)]
    return [*(rows.take(byte_order(rows.keys)) for rows in results), NO_ROWS]


def part(schema: KeyedStateSchema, states: list[StateRows], key_groups: KeyGroupRange) -> Chunk:
    def inside(rows: StateRows) -> StateRows:
        if not len(rows):
            return rows
        groups = key_groups_of(rows.keys, prefix_width(schema.max_parallelism))
        return rows.take(np.flatnonzero((groups >= key_groups.start) & (groups <= key_groups.end)))

    return Chunk(key_groups, [inside(rows) for rows in states])


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("max_parallelism", "step"), [(1, 1), (128, 1), (128, 50), (300, 128), (32768, 9000)])
def test_chunks_make_the_same_stream_as_one_scan(max_parallelism: int, step: int, compressed: bool) -> None:
    schema, whole = schema_of(max_parallelism), all_key_groups(max_parallelism)
    states = entries(schema, 500)
    bounds = [(start, min(start + step, max_parallelism) - 1) for start in range(0, max_parallelism, step)]
    parts = [part(schema, states, KeyGroupRange(*bound)) for bound in bounds]
    stream = ChunkedStream(schema, whole, parts, compressed)
    data = b"".join(stream)
    pieces, offsets = encode_canonical(schema, whole, states, compressed)
    assert data == b"".join(pieces)
    assert stream.offsets == offsets
    width = prefix_width(max_parallelism)
    for result, rows in zip(stream.statistics[:2], states[:2], strict=True):
        assert result.same_content(statistics_of(rows, width, whole))
    assert stream.statistics[2].total_entries == 0


def test_chunks_may_leave_out_key_groups() -> None:
    schema, whole = schema_of(128), KeyGroupRange(10, 90)
    states = entries(schema, 200)
    stream = ChunkedStream(schema, whole, [part(schema, states, KeyGroupRange(20, 21))], compressed=True)
    data = b"".join(stream)
    assert {i + 10 for i, offset in enumerate(stream.offsets) if offset} <= {20, 21}
    handle = KeyGroupsSavepointStateHandle(whole, stream.offsets, ByteStreamStateHandle("x", data))
    header = read_header(lambda a, b: memoryview(data)[a:b], handle, 128)
    result = sum(len(rows) for _, rows in iter_canonical(lambda a, b: memoryview(data)[a:b], handle, header))
    assert result == sum(s.total_entries for s in stream.statistics) > 0


@pytest.mark.parametrize("bounds", [[(5, 9), (9, 12)], [(5, 9), (0, 4)], [(0, 128)], [(3, 2)]])
def test_chunks_that_overlap_or_lie_outside_are_refused(bounds: list[tuple[int, int]]) -> None:
    schema = schema_of(128)
    chunks = [Chunk(KeyGroupRange(*bound), [NO_ROWS] * 3) for bound in bounds]
    with pytest.raises(CorruptStateError) as caught:
        b"".join(ChunkedStream(schema, KeyGroupRange(0, 127), chunks, compressed=False))
    assert caught.value.kind == "chunk-order"


def test_entries_of_other_key_groups_are_refused() -> None:
    schema = schema_of(128)
    chunk = Chunk(KeyGroupRange(0, 63), entries(schema, 50))
    with pytest.raises(CorruptStateError) as caught:
        b"".join(ChunkedStream(schema, KeyGroupRange(0, 127), [chunk], compressed=False))
    assert caught.value.kind == "foreign-key-group"


def test_a_header_encoded_from_its_parts_is_the_same() -> None:
    schema = schema_of(128)
    header = encode_header(schema, compressed=True)
    parts = header_parts(header + b"more")
    assert list(parts.states) == ["v", "m", "none"]
    assert encode_header_with(parts, schema, True, [s.name for s in STATES]) == header
    assert encode_header_with(parts, schema, True, []) == header


def test_unchanged_parts_of_a_header_keep_their_bytes() -> None:
    """The serializer snapshot is equivalent but has other bytes, for example its options in another order."""
    schema = schema_of(128)
    parts = header_parts(encode_header(schema, compressed=False))
    strange = type(parts)(parts.key, {**parts.states, "m": parts.states["m"].replace(b"MAP", b"map")})
    assert b"map" in encode_header_with(strange, schema, False, ["m"])
    assert encode_header_with(strange, schema, False, ["v"]) == encode_header(schema, compressed=False)
