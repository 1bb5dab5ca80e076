"""Expired entries are found in lists as they are found by reading the whole state: every run is taken with and without
lists, on the same state, divided among one to three subtasks."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import StateValues
from statelib.backends.operator.side_data import SideData, StoredSideData
from statelib.backends.wrappers import expiring
from statelib.backends.wrappers import ttl as expiry
from statelib.backends.wrappers.expiring import ExpiringCollector, expiring_name
from statelib.backends.wrappers.ttl import TimedStates, expire
from statelib.model.handles import ByteStreamStateHandle
from statelib.model.key_groups import KeyGroupRange, subtask_range
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.ttl import TtlConfig, TtlUpdate
from statelib.model.types import LONG, STRING, Ttl
from statelib.serializers.entries.keys import encode_keys, key_groups
from statelib.serializers.entries.rows import StateRows, key_groups_of
from statelib.serializers.entries.values import value_arrow_type
from statelib.wire.ragged import Ragged, from_list
from tests.support.extent import examples

GROUPS = 8
STATES = (
    StateDescriptor("v", StateKind.VALUE, Ttl(LONG)),
    StateDescriptor("l", StateKind.LIST, Ttl(STRING)),
    StateDescriptor("m", StateKind.MAP, Ttl(LONG), STRING),
)
SCHEMA = KeyedStateSchema(LONG, GROUPS, STATES)
Lists = dict[str, list[tuple[KeyGroupRange, bytes]]]


@dataclass
class Side:
    """A pipeline of several subtasks. ``lists``: those of the last run, None if runs write none."""

    lists: Lists | None
    rows: dict[str, StateRows] = field(default_factory=dict)
    scans: int = 0

    def run(
        self, parallelism: int, before_ms: int, now_ms: int, durations: dict[str, int], events: list[tuple[int, str]]
    ) -> dict[str, dict[bytes, bytes]]:
        """Take a run, and return the entries of each state."""
        ttl = {name: TtlConfig(duration, TtlUpdate.ON_READ_AND_WRITE) for name, duration in durations.items()}
        written: Lists = {name: [] for name in ttl}
        backends = []
        for subtask in range(parallelism):
            own = subtask_range(subtask, parallelism, GROUPS)
            backend = self._restored(own)
            side_data = None if self.lists is None else {n: self.side_data(self.lists, n, own) for n in ttl}
            expire(backend, ttl, now_ms, before_ms=before_ms, lists=side_data)
            _apply(TimedStates(backend, ttl, now_ms), own, events)
            for name, part in (side_data or {}).items():
                frozen = part.frozen()
                stored = [(each.key_group_range, each.read()) for each in frozen.stored]
                written[name] += stored if frozen.written is None else [(own, frozen.written)]
                self.scans += frozen.written is not None
            backends.append(backend)
        self.lists = None if self.lists is None else written
        entries: dict[str, dict[bytes, bytes]] = {}
        for descriptor in STATES:
            parts = [rows for backend in backends for rows in backend.scan(descriptor.name)]
            pairs = [pair for rows in parts for pair in zip(rows.keys.to_list(), rows.values.to_list(), strict=True)]
            entries[descriptor.name] = dict(pairs)
        self.rows = {name: _rows(pairs) for name, pairs in entries.items()}
        return entries

    def _restored(self, own: KeyGroupRange) -> HeapKeyedStateBackend:
        backend = HeapKeyedStateBackend(SCHEMA, own)
        for name, rows in self.rows.items():
            groups = key_groups_of(rows.keys, 1)
            backend.load(name, rows.take(np.flatnonzero((groups >= own.start) & (groups <= own.end))))
        return backend

    @staticmethod
    def side_data(lists: Lists, name: str, own: KeyGroupRange) -> SideData:
        parts = [(groups.intersection(own), data) for groups, data in lists.get(name, [])]
        stored = [
            StoredSideData(name, groups, ByteStreamStateHandle(f"{i}", data), None, "", InMemory(), True)
            for i, (groups, data) in enumerate(parts)
            if len(groups)
        ]
        return SideData(expiring_name(name), stored)


class InMemory:
    """The reader of bytes that lie in their handle."""

    def read(self, handle: ByteStreamStateHandle) -> bytes:
        return handle.data


def _rows(entries: dict[bytes, bytes]) -> StateRows:
    return StateRows(from_list(list(entries)), from_list(list(entries.values())))


def _apply(backend: TimedStates, own: KeyGroupRange, events: list[tuple[int, str]]) -> None:
    """Write each event to all states: the value, an element of the list, and the entry of the map."""
    keys = pa.array([key for key, _ in events], pa.int64())
    groups = key_groups(SCHEMA, keys)
    rows = np.flatnonzero((groups >= own.start) & (groups <= own.end))
    for row in rows.tolist():
        key, word = keys.slice(row, 1), events[row][1]
        for descriptor in STATES:
            user_keys = pa.array([word]) if descriptor.kind is StateKind.MAP else None
            encoded = encode_keys(SCHEMA, descriptor, key, groups[row : row + 1], user_keys)
            before = backend.read(descriptor.name, encoded)
            value: object = len(word)
            if descriptor.kind is StateKind.LIST:
                value = [*(before.values[0].as_py() or []), word]
            backend.write(
                before, descriptor.name, pa.array([value], value_arrow_type(backend.schema.state(descriptor.name)))
            )


RUNS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "bb"])), max_size=4),
        st.sampled_from([1, 1, 1, 1, 2, 3]),
        st.sampled_from([0, 0, 0, 0, 0, 0, 0, -3, 2]),
    ),
    min_size=4,
    max_size=11,
)


@pytest.mark.parametrize("limit_bytes", [0, 30, 1 << 20])
def test_runs_with_lists_remove_what_runs_without_them_remove(
    limit_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiring, "LIMIT_BYTES", limit_bytes)
    monkeypatch.setattr(expiring, "BATCH_ROWS", 2)
    monkeypatch.setattr(expiry, "_LISTED_AT_ONCE", 3)
    scans, runs_taken = [0], [0]

    @settings(max_examples=examples(24), deadline=None)
    @given(RUNS, st.integers(4, 9))
    def hold(runs: list[tuple[int, list[tuple[int, str]], int, int]], duration: int) -> None:
        """Each run is some milliseconds after the one before it; few runs change the time to live."""
        listing, reading = Side({}), Side(None)
        now_ms, durations = 1000, {"v": duration, "l": duration + 1, "m": duration + 3}
        for later, events, parallelism, change in runs:
            durations = {name: max(each + change, 2) for name, each in durations.items()}
            before_ms, now_ms = now_ms, now_ms + later
            arguments = (before_ms, now_ms, durations, events)
            assert listing.run(parallelism, *arguments) == reading.run(parallelism, *arguments)
            runs_taken[0] += 3 * parallelism
        scans[0] += listing.scans

    hold()
    assert 0 < scans[0] < runs_taken[0] * (1 if not limit_bytes else 0.8)


@pytest.mark.parametrize("change", [-40, -1, 0, 1, 40])
def test_a_list_serves_only_the_time_to_live_that_it_was_made_for(change: int) -> None:
    """Entries expire under a shorter one that the run before did not look for."""
    listing, reading = Side({}), Side(None)
    for now_ms in range(1000, 1101, 4):
        durations = dict.fromkeys("vlm", 100 if now_ms < 1101 - 20 else 100 + change)
        arguments = (1, now_ms - 4, now_ms, durations, [(now_ms % 60, "a")])
        assert listing.run(*arguments) == reading.run(*arguments)
    assert listing.scans == 3 * (2 if change == 0 else 3)


def test_a_run_decodes_some_of_the_listed_values_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bulk load makes a list of which all entries are due in one run."""
    monkeypatch.setattr(expiry, "_LISTED_AT_ONCE", 4)
    sizes = []

    class Counting(HeapKeyedStateBackend):
        """A backend that notes how many keys are read at once."""

        def read(self, state: str, keys: Ragged) -> StateValues:
            sizes.append(len(keys))
            return super().read(state, keys)

    backend, ttl = Counting(SCHEMA, KeyGroupRange(0, GROUPS - 1)), {"v": TtlConfig(100, TtlUpdate.ON_CREATE_AND_WRITE)}
    numbers = pa.array(range(10), pa.int64())
    keys = encode_keys(SCHEMA, STATES[0], numbers, key_groups(SCHEMA, numbers))
    for now_ms, written in ((1000, keys), (1060, keys.slice(0, 3))):
        timed = TimedStates(backend, ttl, now_ms)
        timed.write(timed.read("v", written), "v", numbers.slice(0, len(written)))
        if now_ms == 1000:
            side_data = SideData(expiring_name("v"), [])
            assert expire(backend, ttl, 1051, before_ms=1050, lists={"v": side_data}) == 0
    lists: Lists = {"v": [(backend.key_group_range, side_data.read())]}
    sizes.clear()
    listed = Side.side_data(lists, "v", backend.key_group_range)
    assert expire(backend, ttl, 1100, before_ms=1099, lists={"v": listed}) == 7
    assert max(sizes) == 4
    assert sum(len(rows) for rows in backend.scan("v")) == 3


def test_an_entry_is_listed_once_for_each_time_of_its_elements() -> None:
    keys, collector = from_list([b"\0one", b"\0two"]), ExpiringCollector(9, 9)
    collector.add(keys, np.array([0, 0, 0, 1, 1, 1]), np.array([7, 3, 7, 7, 20, 7]))
    file = pa.ipc.open_file(pa.py_buffer(collector.encoded()))
    assert file.read_all().to_pydict() == {"key": [b"\0one", b"\0one", b"\0two"], "accessed": [3, 7, 7]}
