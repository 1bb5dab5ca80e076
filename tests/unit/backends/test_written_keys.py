"""How many distinct keys were written: equal to a set of decoded keys, whatever the states and batches."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelib.backends import written_keys
from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.written_keys import WrittenKeys
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, STRING, VOID, StateType, Tuple
from statelib.serializers.keys import encode_keys, key_groups
from statelib.serializers.windows import MOMENT

GROUPS = 16


def backend_of(key_type: StateType) -> WrittenKeys:
    states = (
        StateDescriptor("total", StateKind.VALUE, LONG),
        StateDescriptor("per_item", StateKind.MAP, LONG, STRING),
        StateDescriptor("in_space", StateKind.VALUE, LONG, namespace_type=STRING),
        StateDescriptor("_timer_state/event_t", StateKind.TIMERS, VOID),
    )
    schema = KeyedStateSchema(key_type, GROUPS, states)
    return WrittenKeys(HeapKeyedStateBackend(schema, KeyGroupRange(0, GROUPS - 1)))


def write(backend: WrittenKeys, state: str, keys: pa.Array) -> None:
    """One entry a key, with a user key, a namespace or a moment where the state has one."""
    descriptor, rows = backend.schema.state(state), pa.array(range(len(keys)), pa.int64())
    texts = rows.cast(pa.string())
    timers = descriptor.kind is StateKind.TIMERS
    encoded = encode_keys(
        backend.schema,
        descriptor,
        keys,
        key_groups(backend.schema, keys),
        texts if descriptor.kind is StateKind.MAP else None,
        namespaces=texts if state == "in_space" else None,
        timestamps=rows.cast(MOMENT) if timers else None,
    )
    backend.write(backend.read(state, encoded), state, pa.nulls(len(keys)) if timers else rows)


STATES = ("total", "per_item", "in_space", "_timer_state/event_t")
WRITES = st.lists(st.tuples(st.sampled_from(STATES), st.sets(st.integers(-5, 60))), max_size=6)


@pytest.mark.parametrize("pending_bytes", [0, 1 << 30], ids=["merged at once", "merged at the end"])
@pytest.mark.parametrize("key_type", [LONG, STRING, Tuple((STRING, LONG))], ids=str)
def test_distinct_keys_are_those_of_a_set(
    key_type: StateType, pending_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_keys, "_PENDING_BYTES", pending_bytes)

    @given(WRITES)
    def hold(writes: list[tuple[str, set[int]]]) -> None:
        backend = backend_of(key_type)
        for state, numbers in writes:
            write(backend, state, keys_of(key_type, sorted(numbers)))
        assert backend.keys_changed == len({n for _, numbers in writes for n in numbers})

    hold()


def keys_of(key_type: StateType, numbers: list[int]) -> pa.Array:
    longs = pa.array(numbers, pa.int64())
    if key_type == LONG:
        return longs
    texts = pa.array([f"user-{n}" for n in numbers], pa.string())
    return texts if key_type == STRING else pa.StructArray.from_arrays([texts, longs], ["f0", "f1"])


def test_reads_and_loads_are_no_writes() -> None:
    source, target = backend_of(STRING), backend_of(STRING)
    write(source, "total", keys_of(STRING, [1, 2]))
    for rows in source.scan("total"):
        target.load("total", rows)
        target.read("total", rows.keys)
    assert (source.keys_changed, target.keys_changed) == (2, 0)
    assert [s.total_entries for s in target.statistics()] == [2, 0, 0, 0]
