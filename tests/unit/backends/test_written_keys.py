"""The numbers of distinct keys that were written and that exist then. They are compared with sets of decoded keys, for
states of every kind."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.keys import distinct as distinct_keys
from statelib.backends.keys.distinct import KeyCounter
from statelib.backends.rocksdb import backend as rocksdb
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers import written_keys
from statelib.backends.wrappers.written_keys import WrittenKeys
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyCounts, KeyedStateSchema, StateDescriptor, StateKind, no_keys
from statelib.model.types import LONG, STRING, VOID, StateType, Tuple
from statelib.serializers.entries.keys import encode_keys, key_groups
from statelib.serializers.scalars.windows import MOMENT
from statelib.testing.keyed_samples import MEANS, put_and_reuse
from tests.support.extent import examples

GROUPS = 16


def backend_of(key_type: StateType, keys: KeyCounts | None = None) -> WrittenKeys:
    states = (
        StateDescriptor("total", StateKind.VALUE, LONG),
        StateDescriptor("per_item", StateKind.MAP, LONG, STRING),
        StateDescriptor("in_space", StateKind.VALUE, LONG, namespace_type=STRING),
        StateDescriptor("_timer_state/event_t", StateKind.TIMERS, VOID),
    )
    schema = KeyedStateSchema(key_type, GROUPS, states)
    backend = WrittenKeys(HeapKeyedStateBackend(schema, KeyGroupRange(0, GROUPS - 1)), keys)
    backend.count_changes()
    return backend


def write(backend: WrittenKeys, state: str, keys: pa.Array) -> None:
    """Write one entry per key, with a user key, a namespace or a timestamp if the state has one."""
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
def test_the_number_of_changed_keys_is_that_of_a_set_of_keys(
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


def test_reading_and_loading_do_not_count_as_writes() -> None:
    source, target = backend_of(STRING), backend_of(STRING)
    write(source, "total", keys_of(STRING, [1, 2]))
    for rows in source.scan("total"):
        target.load("total", rows)
        target.read("total", rows.keys)
    assert (source.keys_changed, target.keys_changed) == (2, 0)
    assert [s.total_entries for s in target.statistics()] == [2, 0, 0, 0]


def test_keys_are_counted_whatever_their_caller_does_with_them_then() -> None:
    schema = KeyedStateSchema(STRING, GROUPS, (MEANS,))
    backend = WrittenKeys(HeapKeyedStateBackend(schema, KeyGroupRange(0, GROUPS - 1)), None)
    backend.count_changes()
    lent = put_and_reuse(backend, "means", ["a", "b"], [1.0, 2.0])
    lent += put_and_reuse(backend, "means", ["b", "c"], [3.0, 4.0])
    assert all(memory() is None for memory in lent)
    assert backend.keys_changed == 3


Entries = dict[str, set[tuple[int, int]]]
"""The entries by state: the number of a key, and that of its user key, namespace or timestamp."""
NAMES = ("total", "per_item", "in_space", "timed", "_timer_state/event_t")
SCHEMAS = [NAMES, ("total",), ("timed",), ("per_item",), ("total", "timed"), ("in_space", "_timer_state/event_t")]
ENTRIES = st.sets(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=8)
Step = tuple[str, set[tuple[int, int]], bool]
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), ENTRIES, st.booleans()), max_size=8)


def descriptor_of(name: str) -> StateDescriptor:
    """Return the descriptor of a state. The state ``timed`` is a list: an empty list removes its key."""
    kinds = {"per_item": StateKind.MAP, "timed": StateKind.LIST, "_timer_state/event_t": StateKind.TIMERS}
    kind = kinds.get(name, StateKind.VALUE)
    user_key = STRING if kind is StateKind.MAP else None
    space = STRING if name == "in_space" else VOID
    return StateDescriptor(name, kind, VOID if kind is StateKind.TIMERS else LONG, user_key, space)


def change(backend: KeyedStateBackend, state: str, entries: set[tuple[int, int]], *, remove: bool) -> None:
    """Put or remove entries of a state. In a state without namespaces and user keys, only the key counts."""
    descriptor = backend.schema.state(state)
    wanted = sorted(
        entries
        if state in ("per_item", "in_space") or descriptor.kind is StateKind.TIMERS
        else {(key, 0) for key, _ in entries}
    )
    keys = keys_of(STRING, [key for key, _ in wanted])
    seconds = pa.array([second for _, second in wanted], pa.int64())
    encoded = encode_keys(
        backend.schema,
        descriptor,
        keys,
        key_groups(backend.schema, keys),
        seconds.cast(pa.string()) if state == "per_item" else None,
        namespaces=seconds.cast(pa.string()) if state == "in_space" else None,
        timestamps=seconds.cast(MOMENT) if descriptor.kind is StateKind.TIMERS else None,
    )
    before = backend.read(state, encoded)
    if state == "timed":
        backend.write(before, state, pa.array([[] if remove else [1]] * len(wanted), before.values.type))
        return
    values = pa.nulls(len(wanted)) if descriptor.kind is StateKind.TIMERS else seconds
    backend.write(before, state, values, pa.array([remove] * len(wanted), pa.bool_()))


def after(model: Entries, state: str, entries: set[tuple[int, int]], *, remove: bool) -> None:
    plain = state in ("total", "timed")
    changed = {(key, 0 if plain else second) for key, second in entries}
    model[state] = model[state] - changed if remove else model[state] | changed


@pytest.mark.parametrize("scanned_per_key", [0, 2], ids=["each key looked up", "scanned where that is cheaper"])
@pytest.mark.parametrize("pending_bytes", [0, 1 << 30], ids=["merged at once", "merged at the end"])
@pytest.mark.parametrize("kind", ["heap", "rocksdb"])
def test_the_counted_keys_are_those_of_a_model_in_plain_python(
    kind: str, pending_bytes: int, scanned_per_key: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(written_keys, "_PENDING_BYTES", pending_bytes)
    monkeypatch.setattr(distinct_keys, "_PENDING_BYTES", pending_bytes)
    monkeypatch.setattr(rocksdb, "SCANNED_PER_KEY", scanned_per_key)
    numbers = iter(range(1 << 30))

    @settings(max_examples=examples(15), deadline=None)
    @given(st.sampled_from(SCHEMAS), STEPS, STEPS)
    def hold(names: tuple[str, ...], first: list[Step], second: list[Step]) -> None:
        schema = KeyedStateSchema(STRING, GROUPS, tuple(map(descriptor_of, names)))
        whole = KeyGroupRange(0, GROUPS - 1)
        backend: KeyedStateBackend = (
            HeapKeyedStateBackend(schema, whole)
            if kind == "heap"
            else RocksDBKeyedStateBackend(schema, whole, str(tmp_path / str(next(numbers))), "test")
        )
        model: Entries = {name: set() for name in names}
        recorded = no_keys(whole)
        for steps in (first, second):
            written = WrittenKeys(backend, recorded)
            for state, entries, remove in steps:
                if state in names:
                    change(written, state, entries, remove=remove)
                    after(model, state, entries, remove=remove)
            result = written.keys_after()
            assert result is not None
            with_state = [entries for name, entries in model.items() if name != "_timer_state/event_t"]
            assert result.total == len({key for entries in with_state for key, _ in entries})
            counter = KeyCounter(schema)
            for index, name in enumerate(names):
                for rows in backend.scan(name):
                    counter.add(index, rows)
            assert counter.counts().keys.tolist() == result.keys.tolist()
            recorded = result
        backend.close()

    hold()


def test_the_number_of_keys_is_unknown_after_a_run_if_it_was_unknown_before() -> None:
    backend = backend_of(STRING)
    write(backend, "total", keys_of(STRING, [1, 2]))
    assert backend.keys_after() is None
    source = backend_of(STRING, no_keys(KeyGroupRange(0, GROUPS - 1)))
    for rows in backend.scan("total"):
        source.load("total", rows)
    assert source.keys_after() is None


def test_keys_that_have_only_timers_are_not_counted_and_timers_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new key, a key that loses its state, and one that has had only timers: none of them makes a run read timers."""
    schema = KeyedStateSchema(STRING, GROUPS, tuple(map(descriptor_of, ("in_space", "_timer_state/event_t"))))
    whole = KeyGroupRange(0, GROUPS - 1)
    backend = HeapKeyedStateBackend(schema, whole)
    first = WrittenKeys(backend, no_keys(whole))
    change(first, "in_space", {(1, 0), (2, 0), (2, 1)}, remove=False)
    change(first, "_timer_state/event_t", {(1, 5), (2, 5), (3, 5)}, remove=False)
    recorded = first.keys_after()
    assert recorded is not None
    assert recorded.total == 2
    monkeypatch.setattr(backend, "scan", None)
    second = WrittenKeys(backend, recorded)
    change(second, "in_space", {(3, 0), (4, 0)}, remove=False)
    change(second, "in_space", {(1, 0), (2, 1)}, remove=True)
    change(second, "_timer_state/event_t", {(4, 5), (5, 5)}, remove=False)
    counted = second.keys_after()
    assert counted is not None
    assert counted.total == len({2, 3, 4})
    monkeypatch.undo()
    entries = [(i, rows) for i, state in enumerate(schema.states) for rows in backend.scan(state.name)]
    for with_timers, keys in ((False, {2, 3, 4}), (True, {1, 2, 3, 4, 5})):
        counter = KeyCounter(schema, with_timers=with_timers)
        for _ in counter.passing(entries):
            pass
        assert counter.counts().total == len(keys)
        assert counter.counts().with_timers == with_timers


def test_keys_are_counted_by_their_timers_if_there_is_nothing_else() -> None:
    """A job of Flink may have no state but timers."""
    schema = KeyedStateSchema(STRING, GROUPS, (descriptor_of("_timer_state/event_t"),))
    backend = HeapKeyedStateBackend(schema, KeyGroupRange(0, GROUPS - 1))
    change(backend, "_timer_state/event_t", {(1, 5), (1, 6), (3, 5)}, remove=False)
    counter = KeyCounter(schema)
    for rows in backend.scan("_timer_state/event_t"):
        counter.add(0, rows)
    assert counter.counts().total == 2
