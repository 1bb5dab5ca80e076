"""Tests of what only the heap backend has: tables that never change, which are searched from both ends."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.heap.table import empty_table
from statelib.model.key_groups import all_key_groups, prefix_width
from statelib.model.state import StateStatistics
from statelib.serializers.entries.rows import StateRows, join_rows, statistics_of
from statelib.testing.keyed_samples import MEANS, fill, got, put, sample_schema, serialized
from statelib.wire.ragged import from_list


@pytest.mark.parametrize("asked", [1, 3, 10, 30])
def test_lookups_give_the_same_result_whichever_side_is_larger(asked: int) -> None:
    keys = [f"{i:02d}".encode() for i in range(10)]
    table = empty_table(MEANS).appended([pa.array(keys, pa.large_binary())], [pa.array(keys, pa.large_binary())])
    wanted = [f"{(i * 7) % 30:02d}".encode() for i in range(asked)]
    expected = [keys.index(key) if key in keys else -1 for key in wanted]
    assert table.find(from_list(wanted)).tolist() == expected


def test_a_write_does_not_change_the_table_that_it_replaces() -> None:
    schema = sample_schema()
    backend = HeapKeyedStateBackend(schema, all_key_groups(schema.max_parallelism))
    put(backend, "means", ["a", "b"], [1.0, 2.0])
    old = backend.read("means", serialized(schema, "means", ["a", "b"]))
    put(backend, "means", ["a", "b"], [3.0, None])
    assert old.values.to_pylist() == [1.0, 2.0]
    assert got(backend, "means", ["a", "b"]) == [3.0, None]


def test_values_that_no_write_touches_keep_their_bytes() -> None:
    """A map's null that Flink's heap wrote has bytes after it, which its own encoding does not have."""
    schema = sample_schema()
    backend = HeapKeyedStateBackend(schema, all_key_groups(schema.max_parallelism))
    keys = serialized(schema, "per_place", ["a", "b"], ["ATL", "JFK"])
    backend.write(backend.read("per_place", keys), "per_place", pa.array([None, 2], pa.int64()))
    (encoded,) = backend.scan("per_place")
    values = [value + b"\0\0" if value[0] else value for value in encoded.values.to_list()]
    again = HeapKeyedStateBackend(schema, all_key_groups(schema.max_parallelism))
    again.load("per_place", StateRows(encoded.keys, from_list(values)))
    put(again, "per_place", ["b"], [3], ["JFK"])
    (rows,) = again.scan("per_place")
    assert got(again, "per_place", ["a", "b"], ["ATL", "JFK"]) == [None, 3]
    assert [value for value in rows.values.to_list() if value[0]] == [b"\1\0\0"]


def test_entries_that_are_loaded_after_a_write_are_added_to_it() -> None:
    schema = sample_schema()
    backend = HeapKeyedStateBackend(schema, all_key_groups(schema.max_parallelism))
    source = HeapKeyedStateBackend(schema, all_key_groups(schema.max_parallelism))
    put(backend, "means", ["a", "b"], [1.0, 2.0])
    put(source, "means", ["c"], [3.0])
    assert backend.statistics()[1].total_entries == 2
    put(backend, "means", ["a", "d"], [None, 4.0])
    for rows in source.scan("means"):
        backend.load("means", rows)
    assert backend.statistics()[1].total_entries == 3
    assert got(backend, "means", ["a", "b", "c", "d"]) == [None, 2.0, 3.0, 4.0]


def test_a_stale_scan_does_not_overwrite_newer_statistics() -> None:
    schema = sample_schema()
    backend = HeapKeyedStateBackend(schema, all_key_groups(schema.max_parallelism))
    fill(backend, 30)
    scan = backend.scan("means")
    put(backend, "means", ["another"], [1.0])
    assert sum(len(batch) for batch in scan) == 30
    assert backend.statistics()[1].total_entries == 31


@pytest.mark.parametrize("written", [1, 30, 300])
def test_known_statistics_are_updated_if_little_changes_and_counted_anew_otherwise(written: int) -> None:
    """The statistics are wrong by one entry here: if they are counted anew they become right, if they are updated
    they stay wrong by one, and a scan does not count."""
    schema = sample_schema()
    backend = HeapKeyedStateBackend(schema, all_key_groups(schema.max_parallelism))
    fill(backend, 300)
    truth = backend.statistics()
    off = replace(truth[1], entries=truth[1].entries + np.eye(1, len(truth[1].entries), dtype=np.int64)[0])
    backend.set_statistics({"means": off})
    put(backend, "means", [f"new-{i}" for i in range(written)], [float(i) for i in range(written)])
    put(backend, "means", ["new-0", "gone"], [None, None])
    put(backend, "means", ["new-0"], [0.5])
    assert sum(len(rows) for rows in backend.scan("means")) == 300 + written
    assert backend.statistics()[1].total_entries == 300 + written + (written <= 300 / 4)
    assert backend.statistics()[1].digests.tolist() == _counted(backend, "means").digests.tolist()


def test_known_statistics_are_updated_by_writes_to_every_kind_of_state() -> None:
    schema = sample_schema()
    backend = HeapKeyedStateBackend(schema, all_key_groups(schema.max_parallelism))
    fill(backend, 200)
    backend.set_statistics(dict(zip((d.name for d in schema.states), backend.statistics(), strict=True)))
    put(backend, "totals", ["b", "k1"], [{"count": 1, "last": "b"}, None])
    put(backend, "visits", ["a", "k2", "k3"], [[1, 2], [], [7]])
    put(backend, "per_place", ["a", "k1"], [1, None], ["ATL", "ATL"])
    followed = backend.statistics()
    for result, descriptor in zip(followed, schema.states, strict=True):
        assert result.same_content(_counted(backend, descriptor.name))


def _counted(backend: HeapKeyedStateBackend, state: str) -> StateStatistics:
    """Return the statistics of the stored entries, counted without the backend's own."""
    rows = join_rows(list(backend.scan(state)))
    return statistics_of(rows, prefix_width(backend.schema.max_parallelism), backend.key_group_range)


@pytest.mark.parametrize("longest", [0, 5])
def test_values_are_right_after_any_writes_and_loads(longest: int) -> None:
    """Values of one length are overwritten; others stay where they are, and are read from several chunks."""
    random = np.random.default_rng(longest)
    table, expected = empty_table(MEANS), {}
    for step in range(60):
        keys = [b"%02d" % key for key in random.permutation(100)[: random.integers(1, 9)]]
        values = [bytes([step]) * int(4 + random.integers(0, longest + 1)) for _ in keys]
        removed = random.random(len(keys)) < random.choice([0, 0.3])
        put = [b"" if gone else value for value, gone in zip(values, removed, strict=True)]
        table = table.replaced(from_list(keys), table.find(from_list(keys)), from_list(put), removed)
        expected.update(zip(keys, values, strict=True))
        for key, gone in zip(keys, removed, strict=True):
            if gone:
                del expected[key]
        if random.random() < 0.3:
            loaded = {b"%03d" % (step * 4 + i): b"loaded"[: 6 - longest // 5 * i] for i in range(4)}
            table = table.appended(*([pa.array(list(part), pa.large_binary())] for part in (loaded, loaded.values())))
            expected |= loaded
        if random.random() < 0.7:
            columns = [(rows.keys.to_list(), rows.values.to_list()) for rows in table.batches()]
            pairs = [pair for both in columns for pair in zip(*both, strict=True)]
            assert pairs == sorted(expected.items())
            asked = random.permutation(len(table))[:7]
            taken = zip(table.keys.take(pa.array(asked)).to_pylist(), table.values.take(asked).to_list(), strict=True)
            assert all(expected[key] == value for key, value in taken)
            assert table.values.sizes.tolist() == [len(expected[key]) for key in table.keys.to_pylist()]


def test_a_write_copies_no_value_that_it_does_not_change() -> None:
    stored = pa.array([b"a", b"bb", b"ccc"], pa.large_binary())
    table = empty_table(MEANS).appended([stored], [stored])
    values = from_list([b"new"])
    written = table.replaced(from_list([b"bb"]), np.array([1]), values, np.array([False]))
    assert written.values.chunks[0] is table.values.chunks[0]
    assert written.values.take(np.array([2, 1, 0])).to_list() == [b"ccc", b"new", b"a"]
    again = written.replaced(from_list([b"bb"]), np.array([1]), values, np.array([True]))
    assert again.values.take(np.array([1, 0])).to_list() == [b"ccc", b"a"]
    assert sum(len(chunk) for chunk in again.values.chunks) == 3  # the value that was replaced first is no longer there
