"""Every backend finds the timers that are due, in the order of key group and time, and reads few others."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.functions.timers import Timers, register, take_due
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import EVENT_TIMERS, KeyedStateSchema, timers_descriptor
from statelib.model.types import LONG
from statelib.serializers.entries.keys import decode_keys, key_groups

NAME = EVENT_TIMERS + "t"
FIRST, LAST = -(2**63), 2**63 - 1
Making = Callable[[KeyedStateSchema, Path], KeyedStateBackend]


def in_memory(schema: KeyedStateSchema, _: Path) -> KeyedStateBackend:
    return HeapKeyedStateBackend(schema, owned(schema))


def on_disk(schema: KeyedStateSchema, directory: Path) -> RocksDBKeyedStateBackend:
    return RocksDBKeyedStateBackend(schema, owned(schema), str(directory), "5a7b0000-0000-0000-0000-000000000000")


def with_log(schema: KeyedStateSchema, directory: Path) -> KeyedStateBackend:
    return ChangelogKeyedStateBackend(on_disk(schema, directory), 1 << 20)


def owned(schema: KeyedStateSchema) -> KeyGroupRange:
    """Return all key groups but the first and the last one."""
    return KeyGroupRange(1, schema.max_parallelism - 2)


def schema_of(max_parallelism: int) -> KeyedStateSchema:
    return KeyedStateSchema(LONG, max_parallelism, (timers_descriptor(EVENT_TIMERS, "t"),))


def register_all(backend: KeyedStateBackend, timers: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Register timers, given as (key, moment), and return (key group, moment, key) of those that the backend owns."""
    keys = pa.array([key for key, _ in timers], pa.int64())
    groups = key_groups(backend.schema, keys)
    owns = np.isin(groups, list(range(backend.key_group_range.start, backend.key_group_range.end + 1)))
    rows = np.flatnonzero(owns)
    moments = np.array([moment for _, moment in timers], np.int64)
    register(backend, "t", Timers(np.zeros(len(timers), np.int8), moments, keys, groups).take(rows))
    return [(int(groups[row]), int(moments[row]), keys[row].as_py()) for row in rows]


def due(backend: KeyedStateBackend, until_ms: int) -> list[tuple[int, int, int]]:
    """Return the due timers as (key group, moment, key), in the order of the backend."""
    decoded = decode_keys(backend.schema, backend.schema.state(NAME), backend.timers_until(NAME, until_ms))
    assert decoded.timestamps is not None
    moments = decoded.timestamps.cast(pa.int64()).to_pylist()
    return list(zip(decoded.key_groups.tolist(), moments, decoded.keys.to_pylist(), strict=True))


MOMENTS = st.one_of(st.integers(-3, 9), st.integers(FIRST, LAST), st.sampled_from([FIRST, LAST]))


@pytest.mark.parametrize("make", [in_memory, on_disk, with_log])
@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 40), MOMENTS), max_size=60, unique=True),
    st.lists(MOMENTS, min_size=1, max_size=4),
    st.sampled_from([8, 300]),
)
def test_the_due_timers_are_found_and_stay_until_they_are_removed(
    make: Making, timers: list[tuple[int, int]], moments: list[int], max_parallelism: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        backend = make(schema_of(max_parallelism), Path(directory) / "timers")
        registered = register_all(backend, timers)
        for until_ms in moments:
            expected = [timer for timer in registered if timer[1] <= until_ms]
            ordered = sorted(expected, key=lambda timer: timer[:2])
            assert [timer[:2] for timer in due(backend, until_ms)] == [timer[:2] for timer in ordered]
            assert sorted(due(backend, until_ms)) == sorted(expected)
        taken = take_due(backend, "t", 0, moments[0])
        assert (0 if taken is None else len(taken)) == sum(moment <= moments[0] for _, moment, _ in registered)
        assert due(backend, moments[0]) == []
        assert sorted(due(backend, LAST)) == sorted(timer for timer in registered if timer[1] > moments[0])
        backend.close()


@pytest.mark.parametrize(("count", "scans"), [(24, False), (26, True)])
def test_few_due_timers_are_found_without_reading_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, scans: bool
) -> None:
    """A quarter of the 100 timers is where scanning all of them becomes cheaper."""
    backend = on_disk(KeyedStateSchema(LONG, 128, schema_of(128).states), tmp_path / "timers")
    registered: list[tuple[int, int, int]] = []
    for key in range(200):
        if len(registered) < 100:
            registered += register_all(backend, [(key, len(registered))])
    scanned = []
    scan = backend.scan
    monkeypatch.setattr(backend, "scan", lambda state: scanned.append(state) or scan(state))
    assert sorted(due(backend, count - 1)) == sorted(registered[:count])
    assert bool(scanned) == scans
