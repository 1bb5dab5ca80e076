"""Values in a heap stream that only a user's code can read: their end is proved, or the value is refused."""

import random
import struct
from collections.abc import Sequence

import pyarrow as pa
import pytest

from statelib.errors import UnsupportedError
from statelib.formats.heap.reading import iter_heap
from statelib.formats.keyed.group_spans import BATCH_BYTES
from statelib.formats.keyed.header import KeyedHeader
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import EVENT_TIMERS, KeyedStateSchema, StateDescriptor, StateKind, timers_descriptor
from statelib.model.types import LONG, Opaque
from statelib.serializers.entries.keys import key_groups

KRYO = Opaque("a.KryoSerializer", "java.util.UUID")
SCHEMA = KeyedStateSchema(
    LONG,
    128,
    (
        StateDescriptor("n", StateKind.VALUE, LONG),
        StateDescriptor("uuid", StateKind.VALUE, KRYO),
        timers_descriptor(EVENT_TIMERS, "user-timers"),
    ),
)
HEADER = KeyedHeader(SCHEMA, compressed=False, size_bytes=1)


def entry(key: int, value: bytes) -> bytes:
    return b"\0" + struct.pack(">q", key) + value


def stream(groups: dict[int, dict[int, bytes]]) -> tuple[KeyGroupsStateHandle, bytes]:
    """Return a stream with these parts in each key group: ``n`` of each key, the key's value in Kryo's format, and a
    timer of the first key."""
    data, offsets = b"x", []
    for group in range(128):
        offsets.append(len(data))
        values = groups.get(group, {})
        data += struct.pack(">iHi", group, 0, len(values)) + b"".join(entry(k, bytes(8)) for k in values)
        data += struct.pack(">Hi", 1, len(values)) + b"".join(entry(k, v) for k, v in values.items())
        timers = [struct.pack(">Qq", (1 << 63) + 5, k) + b"\0" for k in list(values)[:1]]
        data += struct.pack(">Hi", 2, len(timers)) + b"".join(timers)
    return KeyGroupsStateHandle(KeyGroupRange(0, 127), tuple(offsets), ByteStreamStateHandle("s", data)), data


def read_values(
    groups: dict[int, dict[int, bytes]], only: int = 1, batch_bytes: int = BATCH_BYTES
) -> list[tuple[bytes, bytes]]:
    handle, data = stream(groups)
    pairs: list[tuple[bytes, bytes]] = []
    for _, rows in iter_heap(lambda a, b: memoryview(data)[a:b], handle, HEADER, only=only, batch_bytes=batch_bytes):
        pairs += zip(rows.keys.to_list(), rows.values.to_list(), strict=True)
    return sorted(pairs)


def by_group(keys: Sequence[int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for key, group in zip(keys, key_groups(SCHEMA, pa.array(list(keys), pa.int64())).tolist(), strict=True):
        groups.setdefault(group, []).append(key)
    return groups


def test_the_ends_of_values_are_found_if_keys_and_the_next_state_prove_them() -> None:
    made = random.Random(5)
    keys_of = by_group([made.randrange(-(2**63), 2**63) for _ in range(300)])
    groups = {g: {k: made.randbytes(made.randrange(1, 40)) for k in keys} for g, keys in keys_of.items()}
    wanted = [(bytes([g]) + entry(k, b"")[1:] + b"\0", v) for g, values in groups.items() for k, v in values.items()]
    assert read_values(groups) == sorted(wanted)
    assert len(read_values(groups, only=0)) == 300
    assert len(read_values(groups, only=2)) == len(groups)


def test_the_only_value_of_a_key_group_ends_at_its_end() -> None:
    groups = {g: {keys[0]: entry(keys[-1], b"\0")} for g, keys in by_group(range(300)).items()}
    assert [value for _, value in read_values(groups)] == [v for g in sorted(groups) for v in groups[g].values()]


def test_a_value_that_could_contain_an_entry_is_refused() -> None:
    (group, keys) = next((g, keys) for g, keys in by_group(range(1000)).items() if len(keys) > 2)
    assert len(read_values({group: {keys[0]: b"abc", keys[1]: b"de"}})) == 2
    with pytest.raises(UnsupportedError) as caught:
        read_values({group: {keys[0]: b"a" + entry(keys[2], b"b"), keys[1]: b"de"}})
    assert caught.value.kind == "opaque-entries"


def test_a_value_that_could_contain_the_next_state_is_refused() -> None:
    """Two timers would fill the rest just as well as the end of the value and the one existing timer."""
    (group, keys) = next(iter(by_group(range(10)).items()))
    one = struct.pack(">Qq", (1 << 63) + 5, keys[0]) + b"\0"
    with pytest.raises(UnsupportedError) as caught:
        read_values({group: {keys[0]: b"a" + struct.pack(">Hi", 2, 2) + one[: len(one) - 6]}})
    assert caught.value.kind == "opaque-entries"


def undividable() -> dict[int, dict[int, bytes]]:
    """Return two values of one key group, of which the first could contain an entry."""
    (group, keys) = next((g, keys) for g, keys in by_group(range(1000)).items() if len(keys) > 2)
    return {group: {keys[0]: b"a" + entry(keys[2], b"b"), keys[1]: b"de"}}


@pytest.mark.parametrize("batch_bytes", [16, BATCH_BYTES])
def test_a_state_in_front_of_a_value_without_an_end_can_be_read_alone(batch_bytes: int) -> None:
    """In batches of 16 bytes, every key group is read piece by piece."""
    assert len(read_values(undividable(), only=0, batch_bytes=batch_bytes)) == 2


@pytest.mark.parametrize("batch_bytes", [16, BATCH_BYTES])
def test_a_state_behind_a_value_without_an_end_is_refused(batch_bytes: int) -> None:
    with pytest.raises(UnsupportedError, match="where a value of opaque<"):
        read_values(undividable(), only=2, batch_bytes=batch_bytes)
