"""State that expires, against plain dicts that remember when everything was written."""

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers.ttl import TimedStates, expire
from statelib.errors import InvalidRequestError
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.ttl import TtlConfig, TtlUpdate
from statelib.model.types import INT, LONG, STRING, Ttl
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.serializers.entries.keys import decode_keys, encode_keys, key_groups
from statelib.serializers.entries.values import decode_values
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.heap_native import HeapNativeSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.full import RocksDBFullSnapshotStrategy
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import take_snapshot
from statelib.snapshots.uploads.previous import NO_PREVIOUS
from statelib.storage.closeables import CloseableRegistry
from statelib.testing.checkpoint_chain import CheckpointChain, entries_of, previous_of
from tests.support.extent import examples

UID = "0" * 32
WHOLE = KeyGroupRange(0, 127)
SCHEMA = KeyedStateSchema(
    INT,
    128,
    (
        StateDescriptor("v", StateKind.VALUE, Ttl(STRING)),
        StateDescriptor("l", StateKind.LIST, Ttl(STRING)),
        StateDescriptor("m", StateKind.MAP, Ttl(LONG), STRING),
        StateDescriptor("ever", StateKind.VALUE, LONG),
    ),
)
TTL = {
    "v": TtlConfig(3),
    "l": TtlConfig(2),
    "m": TtlConfig(4, TtlUpdate.ON_READ_AND_WRITE),
}

KEYS = st.integers(0, 5)
WORDS = st.sampled_from(["a", "b", "cc"])
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["v", "ever"]), KEYS, st.one_of(st.none(), st.integers(0, 9))),
    st.tuples(st.just("l"), KEYS, st.lists(WORDS, max_size=4)),
    st.tuples(st.just("m"), st.tuples(KEYS, WORDS), st.one_of(st.none(), st.integers(0, 9))),
    st.tuples(st.just("read"), st.tuples(KEYS, WORDS), st.none()),
)
STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.lists(ACTIONS, max_size=6),
        st.sampled_from(["canonical", "full", "incremental", "heap"]),
    ),
    min_size=1,
    max_size=6,
)


class Model:
    """The expected values with their times, by state and key. Each element of a list has its own time."""

    def __init__(self) -> None:
        self.now = 0
        self.held: dict[str, dict[object, Any]] = {name: {} for name in ("v", "l", "m", "ever")}

    def advance(self, ms: int) -> None:
        self.now += ms
        for name in ("v", "m"):
            limit = self.now - TTL[name].duration_ms
            self.held[name] = {k: (t, x) for k, (t, x) in self.held[name].items() if t > limit}
        limit = self.now - TTL["l"].duration_ms
        lists = {k: [(t, x) for t, x in held if t > limit] for k, held in self.held["l"].items()}
        self.held["l"] = {k: held for k, held in lists.items() if held}

    def write(self, name: str, key: object, value: Any) -> None:
        if value is None or value == []:
            self.held[name].pop(key, None)
        elif name == "l":
            old: list[Any] = list(self.held["l"].get(key, []))
            self.held["l"][key] = [self.element_with_time(old, x) for x in value]
        else:
            self.held[name][key] = (self.now, value) if name != "ever" else value

    def element_with_time(self, old: list[tuple[int, str]], element: str) -> tuple[int, str]:
        """Return the element with its time: an element of the old list keeps its time, and is used once."""
        for i, (_, x) in enumerate(old):
            if x == element:
                return old.pop(i)
        return self.now, element

    def read(self, key: object) -> object:
        if key not in self.held["m"]:
            return None
        value = self.held["m"][key][1]
        self.held["m"][key] = (self.now, value)
        return value


def encoded(name: str, key: object):
    descriptor = SCHEMA.state(name)
    keys = pa.array([key[0] if name == "m" else key], pa.int32())
    user_keys = pa.array([key[1]], pa.string()) if name == "m" else None
    return encode_keys(SCHEMA, descriptor, keys, key_groups(SCHEMA, keys), user_keys)


def act(states: TimedStates, model: Model, action: tuple[str, object, object]) -> None:
    name, key, value = action
    if name == "read":
        assert states.read("m", encoded("m", key)).values.to_pylist() == [model.read(key)]
        return
    if name == "m":
        model.read(key)
    before = states.read(name, encoded(name, key))
    plain = str(value) if name == "v" and value is not None else value
    type_ = {"v": pa.string(), "l": pa.list_(pa.string()), "m": pa.int64(), "ever": pa.int64()}[name]
    states.write(before, name, pa.array([plain], type_), pa.array([value is None]))
    model.write(name, key, plain)


def stored(backend: KeyedStateBackend) -> dict[str, dict[object, object]]:
    values_read: dict[str, dict[object, object]] = {}
    for descriptor in SCHEMA.states:
        entries = values_read.setdefault(descriptor.name, {})
        for rows in backend.scan(descriptor.name):
            decoded = decode_keys(SCHEMA, descriptor, rows.keys)
            keys = decoded.keys.to_pylist()
            if decoded.user_keys is not None:
                keys = list(zip(keys, decoded.user_keys.to_pylist(), strict=True))
            values = decode_values(descriptor, rows.values).to_pylist()
            entries.update(zip(keys, map(with_times, values), strict=True))
    return values_read


def with_times(value: object) -> object:
    if isinstance(value, list):
        return [(e["last_access_ms"], e["value"]) for e in value]
    return (value["last_access_ms"], value["value"]) if isinstance(value, dict) else value


def comparable(held: dict[str, dict[object, object]]) -> dict[str, dict[object, object]]:
    return {**held, "l": {k: Counter(v) for k, v in held["l"].items()}}


class Run:
    """A backend that is stored and restored at every step."""

    def __init__(self, root: Path, kind: str) -> None:
        self.root, self.kind = root, kind
        self.chain = CheckpointChain(root / "storage")
        self.number = 0
        self.source: RestoreSource | None = None
        self.backend = self.restored()

    def restored(self) -> KeyedStateBackend:
        sources = [] if self.source is None else [self.source]
        if self.kind == "heap":
            return restore_heap(SCHEMA, WHOLE, sources, str(self.root / f"scratch-{self.number}"))
        return restore_rocksdb(SCHEMA, WHOLE, sources, str(self.root / f"live-{self.number}"), UID)

    def through(self, strategy: str) -> None:
        self.number += 1
        with_files = isinstance(self.backend, RocksDBKeyedStateBackend)
        if strategy == "incremental" and with_files:
            native = self.source is not None and hasattr(self.source.handle, "shared")
            taken = RocksDBIncrementalSnapshotStrategy(
                self.backend, UID, previous_of(self.source) if native else NO_PREVIOUS
            )
        elif strategy == "full" and with_files:
            taken = RocksDBFullSnapshotStrategy(self.backend, UID)
        elif strategy == "heap" and not with_files:
            taken = HeapNativeSnapshotStrategy(self.backend, UID)
        else:
            taken = CanonicalSnapshotStrategy(self.backend)
        result = take_snapshot(taken, CheckpointId(self.number), self.chain.streams(self.number), CloseableRegistry())
        taken.close()
        self.source = self.chain.source(self.number, result, self.backend)
        in_storage = entries_of(self.source, self.root / "entries")
        assert {n: len(e) for n, e in in_storage.items()} == {n: len(e) for n, e in stored(self.backend).items()}
        self.backend.close()
        self.backend = self.restored()


both_kinds = pytest.mark.parametrize("kind", ["heap", "rocksdb"])


@both_kinds
@settings(max_examples=examples(25), deadline=None)
@given(steps=STEPS)
def test_chains_of_checkpoints_contain_exactly_the_living_entries(kind: str, steps) -> None:
    root = Path(tempfile.mkdtemp(prefix="statelib-ttl-"))
    try:
        run, model = Run(root, kind), Model()
        for ms, actions, strategy in steps:
            model.advance(ms)
            expire(run.backend, TTL, model.now)
            assert comparable(stored(run.backend)) == comparable(model.held)
            states = TimedStates(run.backend, TTL, model.now)
            for action in actions:
                act(states, model, action)
            run.through(strategy)
            assert comparable(stored(run.backend)) == comparable(model.held)
        run.backend.close()
    finally:
        shutil.rmtree(root)


def filled(kind: str, root: Path, rows: int) -> KeyedStateBackend:
    backend = (
        HeapKeyedStateBackend(SCHEMA, WHOLE)
        if kind == "heap"
        else RocksDBKeyedStateBackend(SCHEMA, WHOLE, str(root / "db"), UID)
    )
    keys = pa.array(np.arange(rows), pa.int32())
    states = TimedStates(backend, TTL, 10)
    before = states.read("v", encode_keys(SCHEMA, SCHEMA.state("v"), keys, key_groups(SCHEMA, keys)))
    states.write(before, "v", pa.array(["x"] * rows))
    return backend


@both_kinds
def test_an_entry_expires_exactly_when_its_age_is_the_duration(kind: str, tmp_path: Path) -> None:
    """A value has expired when its age is the duration, not before."""
    backend = filled(kind, tmp_path, 300)
    assert expire(backend, TTL, 12) == 0
    assert backend.statistics()[0].total_entries == 300
    assert expire(backend, TTL, 13) == 300
    assert backend.statistics()[0].total_entries == 0
    assert not backend.statistics()[0].digests.any()
    assert expire(backend, TTL, 1 << 60) == 0
    backend.close()


@both_kinds
def test_a_clock_that_is_set_back_removes_nothing(kind: str, tmp_path: Path) -> None:
    backend = filled(kind, tmp_path, 3)
    assert expire(backend, {"v": TtlConfig(1 << 53)}, -(1 << 53)) == 0
    backend.close()


@both_kinds
def test_expired_entries_are_removed_in_several_batches(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statelib.backends.wrappers.ttl._ROWS_AT_ONCE", 1)
    monkeypatch.setattr("statelib.backends.entries.SCAN_ROWS", 7)
    backend = filled(kind, tmp_path, 100)
    assert expire(backend, TTL, 100) == 100
    assert stored(backend)["v"] == {}
    backend.close()


@both_kinds
def test_a_null_in_a_map_that_expires_is_refused(kind: str, tmp_path: Path) -> None:
    backend = filled(kind, tmp_path, 1)
    states = TimedStates(backend, TTL, 10)
    before = states.read("m", encoded("m", (1, "a")))
    with pytest.raises(InvalidRequestError) as caught:
        states.write(before, "m", pa.array([None], pa.int64()))
    assert caught.value.kind == "null-value"
    states.write(before, "m", pa.array([None], pa.int64()), pa.array([True]))
    backend.close()
