"""Canonical savepoints of real Flink jobs contain exactly the state that the jobs recorded."""

import itertools
from typing import Any

import pytest

from statelib.formats.canonical.encoder import encode_canonical
from statelib.formats.canonical.reading import iter_canonical, read_header
from statelib.formats.keyed.header import KeyedHeader
from statelib.model.handles import ByteStreamStateHandle, KeyGroupsSavepointStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import StateKind
from statelib.serializers.entries.rows import StateRows
from statelib.wire.ragged import concat, from_list
from tests.golden.flink_fixtures import (
    FIXTURES,
    KEYED_KINDS,
    Snapshot,
    keyed_handles,
    load,
    stored_entries,
    true_entries,
)

KEYED = [fixture for fixture in FIXTURES if "opstate" not in fixture and "empty" not in fixture]


@pytest.fixture(params=KEYED)
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    return load(request.param)


def order(entry: tuple[Any, ...]) -> str:
    return repr(entry)


def read_states(
    snapshot: Snapshot, handle: KeyGroupsSavepointStateHandle, header: KeyedHeader, wanted: KeyGroupRange | None = None
) -> list[StateRows]:
    """Return all entries of each state of the schema, sorted by key."""
    parts: list[list[StateRows]] = [[] for _ in header.schema.states]
    for state, rows in iter_canonical(snapshot.read_range(handle.stream), handle, header, wanted):
        parts[state].append(rows)
    return [ordered(concat_rows(batches)) for batches in parts]


def concat_rows(batches: list[StateRows]) -> StateRows:
    return StateRows(concat([rows.keys for rows in batches]), concat([rows.values for rows in batches]))


def ordered(rows: StateRows) -> StateRows:
    pairs = sorted(zip(rows.keys.to_list(), rows.values.to_list(), strict=True))
    return StateRows(from_list([key for key, _ in pairs]), from_list([value for _, value in pairs]))


def entries(rows: StateRows) -> list[tuple[bytes, bytes]]:
    return list(zip(rows.keys.to_list(), rows.values.to_list(), strict=True))


def test_every_entry_equals_that_of_the_job(snapshot: Snapshot) -> None:
    uids = sorted({line["op"] for line in snapshot.truth if line["kind"] in KEYED_KINDS})
    assert uids
    for uid in uids:
        expected = sorted(true_entries(snapshot, uid), key=order)
        assert len(expected) > 100
        assert sorted(stored_entries(snapshot, uid), key=order) == expected
    assert {line["kind"] for line in snapshot.truth} <= KEYED_KINDS


def test_the_header_lists_the_states_and_timers_of_the_job(snapshot: Snapshot) -> None:
    (operator,) = snapshot.about["operators"]
    for _, max_parallelism, handle in keyed_handles(snapshot):
        header = read_header(snapshot.read_range(handle.stream), handle, max_parallelism)
        kinds = {s.name: s.kind.value for s in header.schema.states if s.kind is not StateKind.TIMERS}
        assert kinds == {state["name"]: state["kind"] for state in operator["states"]}
        timers = {state.name for state in header.schema.states if state.kind is StateKind.TIMERS}
        assert timers == {"_timer_state/processing_user-timers", "_timer_state/event_user-timers"}
        assert header.compressed == snapshot.directory.parent.name.startswith("compressed")


def test_ranges_of_key_groups_are_read_alone(snapshot: Snapshot) -> None:
    for _, max_parallelism, handle in keyed_handles(snapshot):
        header = read_header(snapshot.read_range(handle.stream), handle, max_parallelism)
        middle = handle.key_group_range.start + len(handle.key_group_range) // 3
        whole = read_states(snapshot, handle, header)
        low = read_states(snapshot, handle, header, KeyGroupRange(0, middle - 1))
        high = read_states(snapshot, handle, header, KeyGroupRange(middle, max_parallelism - 1))
        for all_of, below, above in zip(whole, low, high, strict=True):
            assert entries(all_of) == entries(below) + entries(above)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_stream_that_is_written_back_has_equal_entries(snapshot: Snapshot, compressed: bool) -> None:
    for _, max_parallelism, handle in keyed_handles(snapshot):
        header = read_header(snapshot.read_range(handle.stream), handle, max_parallelism)
        states = read_states(snapshot, handle, header)
        pieces, offsets = encode_canonical(header.schema, handle.key_group_range, states, compressed)
        stream = ByteStreamStateHandle("again", b"".join(pieces))
        again = KeyGroupsSavepointStateHandle(handle.key_group_range, offsets, stream)
        new_header = read_header(snapshot.read_range(stream), again, max_parallelism)
        assert (new_header.schema, new_header.compressed) == (header.schema, compressed)
        assert [o > 0 for o in offsets] == [o > 0 for o in handle.offsets]
        for old, new in zip(states, read_states(snapshot, again, new_header), strict=True):
            assert entries(old) == entries(new)


@pytest.mark.parametrize("version", ["1.20.5", "2.3.0"])
def test_key_groups_of_rocksdb_are_written_back_byte_for_byte(version: str) -> None:
    """RocksDB writes states in header order and keys in byte order, as statelib does; only the headers differ."""
    snapshot = load(f"{version}/kinds-rocksdb-canonical-p1")
    ((_, max_parallelism, handle),) = keyed_handles(snapshot)
    header = read_header(snapshot.read_range(handle.stream), handle, max_parallelism)
    assert [state.kind is StateKind.TIMERS for state in header.schema.states] == [False] * 6 + [True] * 2
    states = read_states(snapshot, handle, header)
    pieces, offsets = encode_canonical(header.schema, handle.key_group_range, states, False)
    ours = b"".join(pieces)
    begin = min(offset for offset in offsets if offset)
    assert ours[begin:] == bytes(snapshot.content(handle.stream))[header.size_bytes :]


def test_registered_states_without_entries_have_only_a_header() -> None:
    snapshot = load("1.20.5/empty-state-hashmap-canonical")
    handles = [(p, handle) for uid, p, handle in keyed_handles(snapshot) if uid == "keyed"]
    assert [len(handle.key_group_range) for _, handle in handles] == [64, 64]
    for max_parallelism, handle in handles:
        header = read_header(snapshot.read_range(handle.stream), handle, max_parallelism)
        assert header.size_bytes == handle.stream.size_bytes == 3281
        assert len(header.schema.states) == 6 + 2  # Two of them are for timers.
        assert list(iter_canonical(snapshot.read_range(handle.stream), handle, header)) == []


def test_no_key_is_in_two_subtasks() -> None:
    snapshot = load("1.20.5/kinds-hashmap-canonical-p4-files")
    ranges = [handle.key_group_range for _, _, handle in keyed_handles(snapshot)]
    assert len(ranges) == 4
    for left, right in itertools.combinations(ranges, 2):
        assert len(left.intersection(right)) == 0
